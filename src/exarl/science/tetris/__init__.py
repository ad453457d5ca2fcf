"""Tetris: a fast and free implementation of the rules, and the console's game if installed."""
