"""The learning loop and what it keeps: counters, stops, metrics, checkpoints, rounds of learners."""
