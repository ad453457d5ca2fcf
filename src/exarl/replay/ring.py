"""Where replays keep their rows: a ring of the newest."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from exarl.types import Arrays


class Ring:
    """Holds the newest ``capacity`` transitions, each a row of named arrays.

    The first ``add`` fixes names, shapes and dtypes; a later mismatch raises ValueError. Rows are
    numbered as they come; row ``number`` stands in place ``number % capacity``.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.capacity = capacity
        self.size = 0
        self._next = 0  # the number of the next row
        self._rows: Arrays = {}

    def add(self, transitions: Mapping[str, np.ndarray]) -> None:
        """Append rows, the oldest giving way when the ring is full."""
        count = len(next(iter(transitions.values())))
        rows = self._rows or {
            name: np.zeros((self.capacity, *array.shape[1:]), array.dtype)
            for name, array in transitions.items()
        }
        _check(rows, transitions, count)
        self._rows = rows
        count_kept = min(count, self.capacity)
        where = (self._next + np.arange(count - count_kept, count)) % self.capacity
        for name, array in transitions.items():
            self._rows[name][where] = array[count - count_kept :]
        self._next += count
        self.size = min(self.size + count, self.capacity)

    @property
    def row_bytes(self) -> int:
        """The memory of a row."""
        return sum(array[:1].nbytes for array in self._rows.values())

    def take(self, places: np.ndarray) -> Arrays:
        """The rows that stand in these places."""
        return {name: array.take(places, axis=0) for name, array in self._rows.items()}

    def state(self) -> Arrays:
        """Everything needed to continue, as named arrays (views of the filled part)."""
        filled = {f"rows/{name}": array[: self.size] for name, array in self._rows.items()}
        return {"next": np.array(self._next), "size": np.array(self.size), **filled}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over what ``state`` gave; a replay of another capacity keeps the newest that fit."""
        size, start = int(state["size"]), int(state["next"])
        self._rows, self.size, self._next = {}, 0, 0
        # Oldest first, so that a smaller ring keeps the newest. A ring of the same capacity gets
        # every row back into its old place, since sampling is by place.
        order = (np.arange(size) + start) % max(size, 1)
        rows = {
            name.removeprefix("rows/"): array[order]
            for name, array in state.items()
            if name.startswith("rows/")
        }
        self._next = start - size if size == self.capacity else 0
        if size:
            self.add(rows)


def _check(rows: Arrays, transitions: Mapping[str, np.ndarray], count: int) -> None:
    if transitions.keys() != rows.keys():
        raise ValueError(f"expected {sorted(rows)}, got {sorted(transitions)}")
    for name, array in transitions.items():
        row = rows[name]
        if array.shape != (count, *row.shape[1:]) or array.dtype != row.dtype:
            raise ValueError(
                f"'{name}' is {array.shape} {array.dtype}, not ({count}, *{row.shape[1:]})"
                f" {row.dtype}"
            )
