"""Sums over many weights, for drawing items in proportion to them."""

from __future__ import annotations

import numpy as np

FAN_OUT = 16
TOP = 4096
"""Measured (``benchmarks/sum_tree.py``): in NumPy a level costs calls, not comparisons, so few wide
levels below one long cumulative sum beat the twenty levels of a binary tree twice over."""


class SumTree:
    """Weights of ``capacity`` items, zero at first, in a tree of their sums.

    A sum is computed from its children whenever one of them changes, so rounding does not accumulate.
    """

    def __init__(self, capacity: int) -> None:
        self._levels: list[np.ndarray] = []  # [nodes, FAN_OUT], leaves first
        count = capacity
        while count > TOP:
            count = -(-count // FAN_OUT)
            self._levels.append(np.zeros((count, FAN_OUT)))
        self._top = np.zeros(count)

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._top.sum())

    def get(self, indices: np.ndarray) -> np.ndarray:
        """The weights of items, of any shape."""
        leaves = self._levels[0].reshape(-1) if self._levels else self._top
        weights: np.ndarray = leaves[indices]
        return weights

    def set(self, indices: np.ndarray, values: np.ndarray) -> None:
        """Give items [N] their weights [N], none negative; of duplicates the last wins."""
        for level in self._levels:
            level.reshape(-1)[indices] = values
            indices = indices // FAN_OUT
            values = level.take(indices, axis=0).sum(1)
        self._top[indices] = values

    def find(self, masses: np.ndarray) -> np.ndarray:
        """The items [N] over which the cumulative sum of the weights passes ``masses`` [N].

        Masses of at least ``total`` find the last item with a weight. An item of weight zero is
        never found, unless all are.
        """
        sums = self._top.cumsum()
        masses = np.minimum(masses, np.nextafter(sums[-1], 0))
        found = np.minimum(sums.searchsorted(masses, "right"), len(sums) - 1)
        masses = masses - sums[found] + self._top[found]
        for level in reversed(self._levels):
            children = level.take(found, axis=0)
            sums = children.cumsum(1)
            # Rounding may leave a mass just outside its node; inside, 0 <= mass < sums[-1], the
            # first child whose cumulative sum is larger has a weight of its own.
            masses = np.maximum(np.minimum(masses, np.nextafter(sums[:, -1], 0)), 0)
            child = (sums > masses[:, None]).argmax(1)
            place = np.arange(0, sums.size, FAN_OUT) + child
            masses = masses - sums.take(place) + children.take(place)
            found = found * FAN_OUT + child
        return found
