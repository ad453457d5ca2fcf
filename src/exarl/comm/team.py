"""The learners among themselves: averages over all of them, without spinning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from exarl.comm.messages import Messages
from exarl.comm.mpi import Channel, _mpi
from exarl.comm.wait import wait_for

PARTS_TAG, SUM_TAG = 51, 52
BRISK_S = 0.005
"""Learners come to an average at about the same time, and it moves only while they poll."""


class LearnerTeam(ABC):
    """The learners of a run. Every method is collective over them."""

    def __init__(self, channel: Messages, every: int = 1) -> None:
        self.channel = channel
        self.size = channel.size
        self.index = channel.rank
        self.every = every

    def average(self, vector: np.ndarray, weight: float) -> np.ndarray:
        """The weighted mean of everyone's float32 vector; zeros of no weight."""
        sums = np.empty(len(vector) + 1, np.float32)
        np.multiply(vector, weight, out=sums[:-1])
        sums[-1] = weight
        self._add_up(sums)
        sums /= max(float(sums[-1]), 1e-30)
        return sums[:-1]

    @abstractmethod
    def _add_up(self, numbers: np.ndarray) -> None:
        """Put the sum over all learners into everyone's ``numbers``."""


class MpiTeam(LearnerTeam):
    """The communicator of the learners."""

    def __init__(self, comm: Any, every: int = 1) -> None:
        super().__init__(Channel(comm), every)
        self._comm = self.channel.comm  # type: ignore[attr-defined]
        self._in_place = _mpi().IN_PLACE

    def _add_up(self, numbers: np.ndarray) -> None:
        request = self._comm.Iallreduce(self._in_place, numbers)
        wait_for(lambda: True if request.Test() else None, brisk=BRISK_S)


class MailTeam(LearnerTeam):
    """Learners that know each other by messages only; the first adds up."""

    def _add_up(self, numbers: np.ndarray) -> None:
        channel = self.channel
        if self.index:
            channel.send(numbers.tobytes(), 0, PARTS_TAG)
            numbers[:] = channel.receive(0, SUM_TAG)[1].view(np.float32)
            return
        for rank in range(1, self.size):
            numbers += channel.receive(rank, PARTS_TAG)[1].view(np.float32)
        channel.send(numbers.tobytes(), range(1, self.size), SUM_TAG)
