"""A ring of transitions sampled in proportion to priorities (Schaul et al., 2016)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from exarl.replay.ring import Ring
from exarl.replay.sumtree import SumTree
from exarl.types import Arrays

EPSILON = 1e-6
"""Added to every priority, so that no row becomes unreachable."""


class PrioritisedReplay(Ring):
    """The newest ``capacity`` transitions, each as likely as its priority to the power ``alpha``.

    A new row has the largest priority seen so far, at first 1.
    """

    def __init__(self, capacity: int, alpha: float = 0.6) -> None:
        super().__init__(capacity)
        self._alpha = alpha
        self._largest = 1.0  # like the tree's weights to the power alpha already
        self._tree = SumTree(capacity)

    def add(self, transitions: Mapping[str, np.ndarray]) -> None:
        """Append rows, the oldest giving way when the ring is full."""
        first = self._next
        super().add(transitions)
        new = np.arange(max(first, self._next - self.capacity), self._next)
        self._tree.set(new % self.capacity, np.full(len(new), self._largest))

    def sample(self, rng: np.random.Generator, *shape: int, beta: float = 0.4) -> Arrays:
        """Rows drawn with replacement, each array with the leading ``shape`` (one axis or more).

        With them come "index" (int64), the number of each row as ``update`` takes it, and "weight"
        (float32), (N p)^-beta over its maximum along the last axis.
        """
        drawn = self.draw(rng, *shape, beta=beta)
        return {**self.take(drawn.pop("places")), **drawn}

    def draw(self, rng: np.random.Generator, *shape: int, beta: float = 0.4) -> Arrays:
        """What ``sample`` gives, but for the rows the "places" where they stand, for ``take``."""
        if not self.size:
            raise ValueError("cannot sample from an empty replay")
        places = self._tree.find((rng.random(shape) * self._tree.total).ravel()).reshape(shape)
        priorities = self._tree.get(places)
        weights = (priorities.min(-1, keepdims=True) / priorities) ** beta  # N and the sum cancel
        # The newest number that stands in a place.
        numbers = places + (self._next - 1 - places) // self.capacity * self.capacity
        return {"places": places, "index": numbers, "weight": weights.astype(np.float32)}

    def update(self, index: np.ndarray, priorities: np.ndarray) -> None:
        """Set the priorities of sampled rows; of duplicates the last wins.

        Rows that have given way since they were sampled are passed over. Raises ValueError when a
        priority is not finite.
        """
        values = (np.abs(priorities, dtype=np.float64) + EPSILON) ** self._alpha
        largest = float(values.max(initial=self._largest))
        if not math.isfinite(largest):
            raise ValueError("a priority is not finite")
        here = index >= self._next - self.size
        self._tree.set(index[here] % self.capacity, values[here])
        self._largest = largest

    def state(self) -> Arrays:
        """Everything needed to continue, as named arrays (views, but for the priorities)."""
        priorities = self._tree.get(self._places())
        largest = np.array(self._largest)
        return {**super().state(), "priorities": priorities, "largest": largest}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over what ``state`` gave; a replay of another capacity keeps the newest that fit.

        Priorities stay as the alpha that set them made them.
        """
        self._tree = SumTree(self.capacity)
        super().restore(state)
        places = self._places()
        self._tree.set(places, state["priorities"][len(state["priorities"]) - len(places) :])
        self._largest = float(state["largest"])

    def _places(self) -> np.ndarray:
        """Where the rows stand, the oldest first."""
        return np.arange(self._next - self.size, self._next) % self.capacity
