"""How far a run has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from exarl.types import FAILURES


@dataclass
class Counters:
    """How far a run has come; all of it is in the checkpoint."""

    iteration: int = 0
    steps: int = 0
    episodes: int = 0
    updates: int = 0
    version: int = 0
    blocks: int = 0
    restarts: int = 0
    failures: dict[str, list[int]] = field(default_factory=dict)  # by environment, then by kind
    seconds: float = 0.0  # before this process took over
    best_reward: float | None = None
    best_evaluation: float | None = None
    rollbacks: int = 0  # how often it has gone back to a checkpoint after a divergence

    def failed(self, rows: Sequence[Sequence[int]]) -> None:
        """Add the failures of blocks."""
        for env_id, *counts in rows:
            before = self.failures.get(str(env_id), [0] * len(counts))
            self.failures[str(env_id)] = [a + b for a, b in zip(before, counts, strict=True)]

    def failures_by_kind(self) -> dict[str, int]:
        sums = np.sum(list(self.failures.values()), 0, int) if self.failures else 0
        return dict(zip(FAILURES, np.broadcast_to(sums, len(FAILURES)).tolist(), strict=True))

    def failure_report(self) -> dict[str, Any]:
        """How often environments failed: by kind, and of each that did."""
        by_env = sorted(self.failures.items(), key=lambda item: int(item[0]))
        return {
            **self.failures_by_kind(),
            "environments": {
                env_id: {kind: n for kind, n in zip(FAILURES, counts, strict=True) if n}
                for env_id, counts in by_env
            },
        }


def stored_counters(numbers: Mapping[str, Any]) -> Counters:
    """The counters of a checkpoint; TypeError where one of them is no number of its kind."""
    counters = Counters(**numbers)
    whole = (
        "iteration",
        "steps",
        "episodes",
        "updates",
        "version",
        "blocks",
        "restarts",
        "rollbacks",
    )
    if any(type(getattr(counters, name)) is not int for name in whole):
        raise TypeError("a counter is no whole number")
    return counters
