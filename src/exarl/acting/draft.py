"""The arrays of a block while it is being built."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from exarl.comm.codec import decode_info, encode_info
from exarl.types import Arrays, ArraySpec, End, EnvSpec

_BY_STEP = ("actions", "rewards", "terminated", "truncated")


class Draft:
    """The arrays of a block that is being built."""

    def __init__(
        self, spec: EnvSpec, recorded: Mapping[str, ArraySpec], steps: int, width: int
    ) -> None:
        self.observations = spec.observation.zeros(steps + 1, width)
        self.actions = spec.action.zeros(steps, width)
        self.rewards = np.zeros((steps, width), np.float32)
        self.terminated = np.zeros((steps, width), bool)
        self.truncated = np.zeros((steps, width), bool)
        self.recorded = {name: array.zeros(steps, width) for name, array in recorded.items()}
        self.ends: list[list[End]] = [[] for _ in range(width)]

    def column(self, slot: int, steps: int) -> Arrays:
        """The first ``steps`` steps of one environment, as named arrays."""
        ends = self.ends[slot]
        named = {name: array[:steps, slot] for name, array in self._by_step().items()}
        named["observations"] = self.observations[: steps + 1, slot]
        named["finals"] = stack_rows([end.observation for end in ends], self.observations)
        named["returns"] = np.array([end.total_reward for end in ends], np.float64)
        named["lengths"] = np.array([end.length for end in ends], np.int64)
        if any(end.info for end in ends):
            named["info"] = encode_info([end.info for end in ends])
        return {name: np.array(array) for name, array in named.items()}

    def fill(self, slot: int, column: Arrays) -> None:
        """Write what ``column`` returned."""
        for name, array in self._by_step().items():
            array[: len(column[name]), slot] = column[name]
        self.observations[: len(column["observations"]), slot] = column["observations"]
        totals, lengths = column["returns"].tolist(), column["lengths"].tolist()
        info = decode_info(column["info"]) if "info" in column else ({},) * len(lengths)
        listed = zip(column["finals"], totals, lengths, info, strict=True)
        self.ends[slot] = [End(slot, *end) for end in listed]

    def _by_step(self) -> Arrays:
        plain = {name: getattr(self, name) for name in _BY_STEP}
        return plain | {f"recorded/{name}": array for name, array in self.recorded.items()}


def stack_rows(rows: list[np.ndarray], like: np.ndarray) -> np.ndarray:
    """The rows as [K, ...], also when there are none."""
    shape = (len(rows), *like.shape[2:])
    return np.array(rows, like.dtype).reshape(shape)
