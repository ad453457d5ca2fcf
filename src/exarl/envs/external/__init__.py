"""Environments behind messages: programs of the user's own, and environments on other hosts."""
