"""The regulator of the Fermilab Booster's magnet power supplies."""
