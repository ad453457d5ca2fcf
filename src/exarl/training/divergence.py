"""Divergence: losses or weights that are not finite stop a run, or take it back to a checkpoint.

Only numbers that are on the host anyway are checked: a block's metrics when they are read, weights when
they are published, a checkpoint when it is written.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exarl.config import LearnerConfig
from exarl.records.checkpoint import Checkpoint, list_checkpoints, not_finite
from exarl.records.directory import RunDirectory
from exarl.records.state import DIVERGENCE

NOT_FINITE = "weights are not finite"
MOST_ROLLBACKS = 3
"""How often one command returns to a checkpoint before it gives up."""
_JUMP = 2**48
"""Random numbers of a stream that a rollback skips; far more than a run ever draws."""


@dataclass(frozen=True)
class Divergence:
    """What was not finite, and when this was noticed."""

    what: str
    iteration: int
    step: int


class Watch:
    """Checks the losses and weights of a learner. ``now`` returns iteration and step, ``note`` shows a
    line to the user. ``found`` is the first divergence."""

    def __init__(
        self, policy: str, now: Callable[[], tuple[int, int]], note: Callable[[str], None]
    ) -> None:
        self.found: Divergence | None = None
        self._policy = policy
        self._now = now
        self._note = note
        self._last: np.ndarray | None = None

    @property
    def stops(self) -> bool:
        """Whether the run has to stop."""
        return self.found is not None and self._policy != "warn"

    def notice(self, what: str) -> None:
        """Note that the run has diverged, and show it if it is the first time."""
        if self.found is not None:
            return
        self.found = Divergence(what, *self._now())
        going_on = " (on_divergence warn: going on, without checkpoints of what is not finite)"
        self._note(f"diverged at step {self.found.step:,}: {what}" + going_on * (not self.stops))

    def losses(self, metrics: Mapping[str, float]) -> None:
        """Check the metrics of a block with updates.

        A single NaN may mean that a network was not updated, as in TD3, but not if every loss is NaN.
        """
        losses = {name: value for name, value in metrics.items() if "loss" in name}
        bad = [name for name, value in losses.items() if not math.isfinite(value)]
        if bad and (len(bad) == len(losses) or any(math.isinf(losses[name]) for name in bad)):
            self.notice(f"{bad[0]} is {losses[bad[0]]}")

    def weights(self, vector: np.ndarray) -> np.ndarray:
        """The weights to act with: these or, where the run has to stop, the last finite ones.

        So no environment gets actions that are not finite.
        """
        if np.isfinite(vector).all():
            self._last = vector
            return vector
        self.notice(NOT_FINITE)
        return vector if self._last is None or not self.stops else self._last

    def good(self, draft: Checkpoint) -> bool:
        """Whether a checkpoint may become the newest one."""
        if (name := not_finite(draft)) is not None:
            self.notice(NOT_FINITE if name == "weights" else f"{name} is not finite")
            return False
        drafted = int(draft.numbers["counters"]["iteration"])
        return self.found is None or not self.stops or drafted < self.found.iteration

    def verdict(self, run: RunDirectory) -> dict[str, Any]:
        """The entries of summary.json about a divergence; none without one."""
        if self.found is None:
            return {}
        kept = list_checkpoints(run.checkpoints)
        checkpoint = str(kept[0]) if kept else None
        facts = {"what": self.found.what, "step": self.found.step, "checkpoint": checkpoint}
        error = f"diverged at step {self.found.step:,}: {self.found.what}"
        return {"divergence": facts, **({"error": error} if self.stops else {})}


def remedy(summary: Mapping[str, Any], run: Path) -> str:
    """One line about a run that has diverged: its step, the last good checkpoint, what may help."""
    facts, tried = summary["divergence"], summary["rollbacks"]
    begun = f"the run diverged at step {facts['step']:,} ({facts['what']})"
    begun += f", after {tried} rollback{'s' * (tried > 1)}" if tried else ""
    ways = "a smaller learning_rate or smaller rewards (reward_scale, normalize_rewards) may help"
    if facts["checkpoint"] is None:
        return f"{begun}; there was no checkpoint yet; {ways}"
    again = (
        "" if tried else f"; with other random numbers: exarl resume {run} --on_divergence rollback"
    )
    return f"{begun}; the last good checkpoint is {facts['checkpoint']}; {ways}{again}"


def rolls_back(config: LearnerConfig, summary: Mapping[str, Any], before: int) -> bool:
    """Whether a run with this summary goes on from its last good checkpoint after ``before``
    rollbacks."""
    return (
        config.on_divergence == "rollback"
        and summary["reason"] == DIVERGENCE
        and summary["divergence"]["checkpoint"] is not None
        and before < MOST_ROLLBACKS
    )


def with_other_streams(checkpoint: Checkpoint, times: int) -> Checkpoint:
    """The checkpoint for rollback number ``times``, with every random stream moved ahead.

    With the same random numbers the run would diverge again. ``times`` = 0 changes nothing.
    """
    if not times:
        return checkpoint
    envs = checkpoint.arrays.get("envs", {})
    fused = sum(name.startswith("fused/") for name in envs)
    keys = ("replay/seed", f"fused/{fused - 1}")  # on the device: of the replay, of the program
    arrays = {
        stem: {name: _jumped(name, array, times, keys) for name, array in named.items()}
        for stem, named in checkpoint.arrays.items()
    }
    numbers = copy.deepcopy(checkpoint.numbers)
    counters = numbers["counters"]
    counters["rollbacks"] = max(counters.get("rollbacks", 0) + 1, times)
    for agent in (numbers["agent"], *numbers.get("agents", [])):
        if agent.get("rng", {}).get("bit_generator") == "PCG64":
            stream = np.random.PCG64()
            stream.state = agent["rng"]
            stream.advance(times * _JUMP)
            agent["rng"] = stream.state
    return dataclasses.replace(checkpoint, arrays=arrays, numbers=numbers)


def _jumped(name: str, array: np.ndarray, times: int, keys: Sequence[str]) -> np.ndarray:
    if re.fullmatch(r"\d+/stream", name):  # an environment's exploration
        return np.asarray(array + times * _JUMP)
    if name in keys:  # another key is another stream
        return np.asarray(array + np.asarray(times, array.dtype))
    return array
