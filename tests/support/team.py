"""Several learners that train one agent together, each in a thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from exarl.types import Block


class Meeting:
    """Where the threads of a team exchange their vectors."""

    def __init__(self, size: int) -> None:
        self.vectors: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=60)


class ThreadTeam:
    """One learner's view of a team of threads."""

    def __init__(self, meeting: Meeting, index: int, every: int) -> None:
        self.size, self.index, self.every = len(meeting.vectors), index, every
        self._meeting = meeting

    def average(self, vector: np.ndarray, weight: float) -> np.ndarray:
        meeting = self._meeting
        meeting.vectors[self.index] = (np.array(vector), weight)
        meeting.barrier.wait()
        total = sum(w * v for v, w in meeting.vectors)
        mean: np.ndarray = total / sum(w for _, w in meeting.vectors)
        meeting.barrier.wait()
        return mean.astype(np.float32)


def train_together(
    agents: Sequence[Any], blocks: Sequence[Block | None], steps: int = 32
) -> list[dict[str, float]]:
    with ThreadPoolExecutor(len(agents)) as pool:
        jobs = [pool.submit(a.train_in_team, b, steps) for a, b in zip(agents, blocks, strict=True)]
        return [job.result() for job in jobs]


def assert_same_state(agents: Sequence[Any]) -> None:
    first, *others = (jax.tree.leaves(agent.train_state) for agent in agents)
    for other in others:
        for leaf, again in zip(first, other, strict=True):
            np.testing.assert_array_equal(leaf, again)
