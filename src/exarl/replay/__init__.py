"""Replay: stores of transitions that a learner samples from."""

from exarl.replay.uniform import UniformReplay

__all__ = ["UniformReplay"]
