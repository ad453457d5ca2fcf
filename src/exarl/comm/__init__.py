"""Between processes: their roles, how data becomes bytes, how bytes travel, how to wait."""
