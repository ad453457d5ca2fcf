"""The learners among themselves: averages over all of them, without spinning."""

from __future__ import annotations

from typing import Any

import numpy as np

from exarl.comm.mpi import Channel, _mpi
from exarl.comm.wait import wait_for

BRISK_S = 0.005
"""Learners come to an average at about the same time, and it moves only while they poll."""


class LearnerTeam:
    """The communicator of the learners. Every method is collective over them."""

    def __init__(self, comm: Any, every: int = 1) -> None:
        self.channel = Channel(comm)
        self.size: int = comm.size
        self.index: int = comm.rank
        self.every = every
        self._in_place = _mpi().IN_PLACE

    def average(self, vector: np.ndarray, weight: float) -> np.ndarray:
        """The weighted mean of everyone's float32 vector, by one all-reduce; zeros of no weight."""
        sums = np.empty(len(vector) + 1, np.float32)
        np.multiply(vector, weight, out=sums[:-1])
        sums[-1] = weight
        request = self.channel.comm.Iallreduce(self._in_place, sums)
        wait_for(lambda: True if request.Test() else None, brisk=BRISK_S)
        sums /= max(float(sums[-1]), 1e-30)
        return sums[:-1]
