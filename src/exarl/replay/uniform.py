"""A ring of transitions sampled uniformly."""

from __future__ import annotations

import numpy as np

from exarl.replay.ring import Ring
from exarl.types import Arrays


class UniformReplay(Ring):
    """The newest ``capacity`` transitions, all as likely."""

    def sample(self, rng: np.random.Generator, *shape: int) -> Arrays:
        """Rows drawn with replacement, each array with the leading ``shape``."""
        return self.take(self.draw(rng, *shape)["places"])

    def draw(self, rng: np.random.Generator, *shape: int) -> Arrays:
        """The "places" of what ``sample`` gives, for ``take``."""
        if not self.size:
            raise ValueError("cannot sample from an empty replay")
        return {"places": rng.integers(self.size, size=shape)}
