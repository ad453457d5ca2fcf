"""A run is a directory: configuration, metrics, checkpoints, logs, traces and a summary."""
