"""The packaged science cases and Tetris."""
