"""One-sided memory within one process: what ``exarl.comm.window.Window`` offers, without MPI."""

from __future__ import annotations

import numpy as np


class MemoryWindow:
    """The bytes of ``ranks`` ranks; everything happens at once and in order."""

    def __init__(self, size: int, ranks: int = 1) -> None:
        self._memory = np.zeros((ranks, -(-size // 8) * 8), np.uint8)
        self.accesses = 0

    def read(self, rank: int, offset: int, size: int) -> np.ndarray:
        self.accesses += 1
        return self._memory[rank, offset : offset + size].copy()

    def write(self, rank: int, offset: int, payload: np.ndarray) -> None:
        self.accesses += 1
        assert offset + len(payload) <= self._memory.shape[1]
        self._memory[rank, offset : offset + len(payload)] = payload

    def words(self, rank: int, offset: int, count: int) -> np.ndarray:
        self.accesses += 1
        return self._words(rank)[offset // 8 : offset // 8 + count].copy()

    def swap_if(self, rank: int, offset: int, expected: int, value: int) -> bool:
        self.accesses += 1
        place, words = offset // 8, self._words(rank)
        swapped = int(words[place]) == expected
        if swapped:
            words[place] = value
        return swapped

    def swap_and_count(
        self, rank: int, offset: int, expected: int, value: int, counter: int
    ) -> int | None:
        before = self.add(rank, counter, 1)
        return before if self.swap_if(rank, offset, expected, value) else None

    def add(self, rank: int, offset: int, value: int) -> int:
        before = self.get(rank, offset)
        self._words(rank)[offset // 8] += value
        return before

    def set(self, rank: int, offset: int, value: int) -> int:
        before = self.get(rank, offset)
        self._words(rank)[offset // 8] = value
        return before

    def get(self, rank: int, offset: int) -> int:
        self.accesses += 1
        return int(self._words(rank)[offset // 8])

    def _words(self, rank: int) -> np.ndarray:
        return self._memory[rank].view(np.int64)
