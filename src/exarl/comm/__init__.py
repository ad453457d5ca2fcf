"""Between ranks: who does what, how a block becomes bytes, how bytes travel, how to wait."""
