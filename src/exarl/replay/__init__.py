"""Replay: stores of transitions that a learner samples from."""

from exarl.replay.prioritised import PrioritisedReplay
from exarl.replay.uniform import UniformReplay

__all__ = ["PrioritisedReplay", "UniformReplay"]
