"""Memory that other ranks read and write directly: MPI windows, allocated by MPI."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from exarl.comm.channel import _mpi, meet, on_this_machine, unname_shared_memory
from exarl.errors import ConfigError

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Op

WORD = 8
SHARED_MEMORY = Path("/dev/shm")
"""Where MPI libraries on Linux allocate the windows of ranks on one machine."""
_HINTS = {"accumulate_ops": "same_op_no_op", "accumulate_ordering": "none"}
"""What MPI may assume: see ``Window``."""


class Window:
    """``size`` bytes on each rank of a communicator (collective), accessible to all until ``free``.

    Every access is an MPI operation followed by a flush, also to the rank's own memory, so that one
    set of rules holds for local and remote memory, and nothing depends on the order of two accesses
    under way. Single words are read and changed atomically; each word by one kind of change only
    (``add``, ``set`` or ``swap_if``), since MPI does not make different kinds atomic together.
    """

    def __init__(self, comm: Intracomm, size: int) -> None:
        mpi = _mpi()
        self._mpi = mpi
        self._comm = comm
        meet(comm)
        _check_room(comm, max(size, WORD))
        hints = mpi.Info.Create(_HINTS)
        self._window = mpi.Win.Allocate(max(size, WORD), 1, hints, comm)
        hints.Free()
        np.frombuffer(self._window.tomemory(), np.uint8)[:] = 0
        unname_shared_memory(comm)
        self._window.Lock_all(mpi.MODE_NOCHECK)
        # MPI's arguments are built once: building them costs as much as an access to shared memory.
        self._byte, self._int64 = mpi.BYTE, mpi.INT64_T
        self._word, self._given, self._expected, self._second = np.zeros((4, 1), np.int64)
        self._to_word, self._from_given, self._from_expected, self._to_second = (
            (array, 1, mpi.INT64_T)
            for array in (self._word, self._given, self._expected, self._second)
        )
        self._from_one = (np.ones(1, np.int64), 1, mpi.INT64_T)
        self._from_nothing = (np.empty(0, np.int64), 0, mpi.INT64_T)

    def read(self, rank: int, offset: int, size: int) -> np.ndarray:
        """A copy of ``size`` bytes."""
        target = np.empty(size, np.uint8)
        self._window.Get((target, size, self._byte), rank, (offset, size, self._byte))
        self._window.Flush(rank)
        return target

    def write(self, rank: int, offset: int, payload: np.ndarray) -> None:
        """Write bytes; they are in the window when this returns."""
        size = len(payload)
        self._window.Put((payload, size, self._byte), rank, (offset, size, self._byte))
        self._window.Flush(rank)

    def words(self, rank: int, offset: int, count: int) -> np.ndarray:
        """``count`` words, each read atomically (not all at once)."""
        target = np.empty(count, np.int64)
        self._window.Get_accumulate(
            self._from_nothing,
            (target, count, self._int64),
            rank,
            (offset, count, self._int64),
            self._mpi.NO_OP,
        )
        self._window.Flush(rank)
        return target

    def swap_if(self, rank: int, offset: int, expected: int, value: int) -> bool:
        """Set the word to ``value`` if it is ``expected``; returns whether it was."""
        self._begin_swap(rank, offset, expected, value)
        self._window.Flush(rank)
        return int(self._word[0]) == expected

    def swap_and_count(
        self, rank: int, offset: int, expected: int, value: int, counter: int
    ) -> int | None:
        """Like ``swap_if``, and in the same flush add 1 to the word at ``counter``, swapped or not.
        Returns the counter before that, or None if the word was not ``expected``."""
        self._begin_swap(rank, offset, expected, value)
        self._window.Fetch_and_op(self._from_one, self._to_second, rank, counter, self._mpi.SUM)
        self._window.Flush(rank)
        return int(self._second[0]) if int(self._word[0]) == expected else None

    def add(self, rank: int, offset: int, value: int) -> int:
        """Add to the word; returns its value before."""
        return self._fetch(rank, offset, value, self._mpi.SUM)

    def set(self, rank: int, offset: int, value: int) -> int:
        """Replace the word; returns its value before."""
        return self._fetch(rank, offset, value, self._mpi.REPLACE)

    def get(self, rank: int, offset: int) -> int:
        """The word."""
        return self._fetch(rank, offset, 0, self._mpi.NO_OP)

    def free(self) -> None:
        """Collective."""
        self._window.Unlock_all()
        meet(self._comm)
        self._window.Free()

    def _begin_swap(self, rank: int, offset: int, expected: int, value: int) -> None:
        self._given[0], self._expected[0] = value, expected
        self._window.Compare_and_swap(
            self._from_given, self._from_expected, self._to_word, rank, offset
        )

    def _fetch(self, rank: int, offset: int, value: int, operation: Op) -> int:
        self._given[0] = value
        self._window.Fetch_and_op(self._from_given, self._to_word, rank, offset, operation)
        self._window.Flush(rank)
        return int(self._word[0])


def _check_room(comm: Intracomm, size: int) -> None:
    """ConfigError, on the first rank of a machine, if its shared memory is too small for the windows
    of all its ranks: MPI would not notice, and the first access to a missing page is a bus error."""
    sizes = np.empty(comm.size, np.int64)
    comm.Allgather(np.array([size], np.int64), sizes)
    here = on_this_machine(comm)
    if len(here) == 1 or comm.rank != here[0] or not SHARED_MEMORY.is_dir():
        return
    page = os.sysconf("SC_PAGE_SIZE")
    needed = sum(-(-int(sizes[rank]) // page) * page for rank in here)
    found = os.statvfs(SHARED_MEMORY)
    free = found.f_bavail * found.f_frsize
    if needed > free:
        raise ConfigError(
            f"one-sided memory for {len(here)} ranks on this machine needs {needed / 1e6:,.0f} MB, but"
            f" {SHARED_MEMORY} has {free / 1e6:,.0f} MB free: choose fewer slots or smaller blocks,"
            " workflow async, or more shared memory (in Docker --shm-size)"
        )
