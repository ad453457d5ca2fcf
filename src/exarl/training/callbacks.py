"""Functions of a script that the first learner calls while it trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from exarl.acting.evaluation import Evaluation

CALLBACK = "callback"
"""The reason in the summary of a run that a callback stopped."""


class RunProgress(NamedTuple):
    """How far a run is, after a block was trained."""

    steps: int
    episodes: int
    updates: int
    iteration: int
    seconds: float
    reward_mean: float | None
    """Of the latest ``reward_window`` episodes; None before the first has ended."""


class EndedEpisode(NamedTuple):
    """An episode of training that has ended."""

    reward: float
    length: int
    steps: int
    """Environment steps of the run when its block was trained."""


@dataclass(frozen=True)
class Callbacks:
    """What to call; None is not called. What a callback raises ends the run as a failure."""

    on_block: Callable[[RunProgress], object] | None = None
    """After each block that was trained."""
    on_episode: Callable[[EndedEpisode], object] | None = None
    """For each episode that ended in it."""
    on_evaluation: Callable[[Evaluation], object] | None = None
    """After each evaluation of the policy (``eval_interval``)."""
    stop: Callable[[RunProgress], object] | None = None
    """After each block; the run ends when it returns something true."""

    def after_block(self, progress: RunProgress, ended: Iterable[tuple[float, int]]) -> bool:
        """Call what is to be called; ``ended`` are the return and the length of each episode. Return
        whether to stop."""
        if self.on_episode is not None:
            for reward, length in ended:
                self.on_episode(EndedEpisode(reward, length, progress.steps))
        if self.on_block is not None:
            self.on_block(progress)
        return self.stop is not None and bool(self.stop(progress))

    def __bool__(self) -> bool:
        return any((self.on_block, self.on_episode, self.on_evaluation, self.stop))
