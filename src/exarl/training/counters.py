"""The counters of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from exarl.records.metrics import FROM_BLOCKS
from exarl.training.rounds import Report
from exarl.types import FAILURES

_WHOLE = ("iteration", "steps", "episodes", "updates", "version", "blocks", "rollbacks")
_COLUMNS = {
    "training_iteration": "iteration",
    "timesteps_total": "steps",
    "episodes_total": "episodes",
    "updates_total": "updates",
}


@dataclass
class Counters:
    """The progress of a run, all of which is stored in checkpoints."""

    iteration: int = 0
    steps: int = 0
    episodes: int = 0
    updates: int = 0
    version: int = 0
    blocks: int = 0
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FROM_BLOCKS, 0))
    failures: dict[str, list[int]] = field(default_factory=dict)  # by environment, then by kind
    seconds: float = 0.0  # of the parts of the run before this one
    simulated_core_s: float = 0.0  # cores of an environment x time in environments
    learner_core_s: float = 0.0  # of the parts of the run before this one
    best_reward: float | None = None
    best_evaluation: float | None = None
    rollbacks: int = 0  # returns to a checkpoint after a divergence

    def add(self, report: Report, updates: int) -> None:
        """Count a training iteration and the ``updates`` made in it."""
        self.iteration += 1
        self.version += 1
        self.blocks += report.blocks
        self.steps += report.steps
        self.updates += updates
        self.episodes += len(report.returns) + report.unlisted
        for column, count in report.totals.items():
            self.totals[column] += count
        for env_id, *counts in report.failures:
            before = self.failures.get(str(env_id), [0] * len(counts))
            self.failures[str(env_id)] = [a + b for a, b in zip(before, counts, strict=True)]

    @property
    def place(self) -> int:
        """How far a run is, in what its checkpoints and evaluations are named by: environment steps, or
        updates where it makes none."""
        return self.steps or self.updates

    def column(self, name: str) -> int:
        """The present value of a column that counts; KeyError for any other."""
        if name in self.totals:
            return self.totals[name]
        return int(getattr(self, _COLUMNS[name]))

    def failures_by_kind(self) -> dict[str, int]:
        sums = np.sum(list(self.failures.values()), 0, int) if self.failures else 0
        return dict(zip(FAILURES, np.broadcast_to(sums, len(FAILURES)).tolist(), strict=True))

    def state(self, seconds: float, learner_core_s: float) -> dict[str, Any]:
        """The counters for a checkpoint, with what they are now of the time and of learning."""
        return {**asdict(self), "seconds": seconds, "learner_core_s": learner_core_s}

    def summary(self) -> dict[str, Any]:
        """The counters as summary.json has them."""
        return {
            **{column: getattr(self, name) for column, name in _COLUMNS.items()},
            "best_reward_mean": self.best_reward,
            "best_evaluation": self.best_evaluation,
            "rollbacks": self.rollbacks,
            **self.totals,
            "env_failures": self.failure_report(),
        }

    def failure_report(self) -> dict[str, Any]:
        """The failures of environments: by kind, and by environment."""
        by_env = sorted(self.failures.items(), key=lambda item: int(item[0]))
        return {
            **self.failures_by_kind(),
            "environments": {
                env_id: {kind: n for kind, n in zip(FAILURES, counts, strict=True) if n}
                for env_id, counts in by_env
            },
        }


def stored_counters(numbers: Mapping[str, Any]) -> Counters:
    """The counters of a checkpoint. TypeError where one that counts is not a whole number."""
    stored = dict(numbers)
    before = {"env_restarts": stored.pop("restarts", 0)}  # format 0 has no totals
    counters = Counters(**stored)
    counters.totals = {**dict.fromkeys(FROM_BLOCKS, 0), **before, **stored.get("totals", {})}
    whole = [getattr(counters, name) for name in _WHOLE]
    if any(type(count) is not int for count in (*whole, *counters.totals.values())):
        raise TypeError("a counter is not a whole number")
    return counters
