"""Tetris: rules of our own, fast and free, and the console's game where it is installed."""
