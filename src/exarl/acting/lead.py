"""The newest steps of an actor's environments: what the next block leads with."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from exarl.agents.blocks import steps_of
from exarl.types import Arrays, Block, EnvSpec, Steps, unknown_steps

PREFIX = "lead/"


class Lead:
    """The last ``count`` steps of ``width`` environments; ``steps`` is None where the agent asks for
    none. Those of before the run, or of an environment that has taken another's place, are unknown.

    The arrays of ``steps`` belong to the block that is being built, and are not changed after it.
    """

    def __init__(self, spec: EnvSpec, count: int, width: int) -> None:
        self.steps = unknown_steps(spec, count, width) if count else None

    def follow(self, block: Block) -> None:
        """The newest steps after this block, of which ``steps`` are the lead."""
        if self.steps is not None:
            newest = steps_of(np, block).newest(len(self.steps.rewards))
            self.steps = Steps(*(np.array(array) for array in newest))

    def cut(self, slots: Iterable[int]) -> None:
        """The environments in these slots are in another episode by now: that of their newest step was
        truncated there, unless the step terminated it."""
        if self.steps is not None:
            np.asarray(self.steps.truncated)[-1, list(slots)] = True

    def column(self, slot: int) -> Arrays:
        """The steps of one environment, as named arrays."""
        if self.steps is None:
            return {}
        return {f"{PREFIX}{n}": np.array(a[:, slot]) for n, a in self.steps._asdict().items()}

    def fill(self, slot: int, column: Arrays) -> None:
        """Take over what ``column`` returned; its steps remain unknown if ``column`` has none, as it
        was written before blocks had a lead. ValueError if they do not fit."""
        if self.steps is None or f"{PREFIX}known" not in column:
            return
        for name, array in self.steps._asdict().items():
            stored, place = column[f"{PREFIX}{name}"], array[:, slot]
            if (stored.shape, stored.dtype) != (place.shape, place.dtype):
                raise ValueError(f"{PREFIX}{name} does not have the form of this run's steps")
            place[...] = stored
