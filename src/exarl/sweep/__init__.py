"""Sweeps: many trainings with different parameters, and what they say about the best ones."""
