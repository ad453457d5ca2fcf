"""Bytes between MPI ranks. Nothing here pickles, and nothing spins while it waits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from exarl.comm.wait import wait_for

CHUNK = 1 << 30
"""Longest single message: MPI counts are 32 bits wide in many libraries still in use."""

ANY = -1


class Channel:
    """Sends and receives byte arrays on a communicator of its own.

    A message of exactly ``chunk`` bytes is continued by the next one, so lengths need no header.
    """

    def __init__(self, comm: Any, chunk: int = CHUNK) -> None:
        self.comm = comm.Dup()
        self.rank: int = comm.rank
        self.size: int = comm.size
        self._chunk = chunk
        self._mpi = _mpi()

    def send(self, payload: Any, dest: int | Iterable[int], tag: int) -> None:
        """Send the same bytes to one rank or to several; returns when the buffer is free again."""
        data = np.frombuffer(payload, np.uint8)
        pieces = [data[i : i + self._chunk] for i in range(0, len(data) + 1, self._chunk)]
        ranks = [dest] if isinstance(dest, int) else list(dest)
        requests = [
            self.comm.Isend([piece, self._mpi.BYTE], dest=rank, tag=tag)
            for piece in pieces
            for rank in ranks
        ]
        wait_for(lambda: True if self._mpi.Request.Testall(requests) else None)

    def receive(
        self, source: int = ANY, tag: int = 0, check: Callable[[], None] | None = None
    ) -> tuple[int, np.ndarray]:
        """The next message of ``tag`` and the rank it came from. ``check`` is called while waiting
        and may raise."""
        rank, piece = self._receive_piece(source, tag, check)
        if len(piece) < self._chunk:
            return rank, piece
        pieces = [piece]
        while len(pieces[-1]) == self._chunk:
            pieces.append(self._receive_piece(rank, tag, check)[1])
        return rank, np.concatenate(pieces)

    def _receive_piece(
        self, source: int, tag: int, check: Callable[[], None] | None
    ) -> tuple[int, np.ndarray]:
        status = self._mpi.Status()
        any_source = self._mpi.ANY_SOURCE if source == ANY else source

        def poll() -> Any:
            if check is not None:
                check()
            return self.comm.Improbe(source=any_source, tag=tag, status=status)

        message = wait_for(poll)
        piece = np.empty(status.Get_count(self._mpi.BYTE), np.uint8)
        request = message.Irecv([piece, self._mpi.BYTE])
        wait_for(lambda: True if request.Test() else None)
        return status.Get_source(), piece

    def wait_for_all(self) -> None:
        """Return when every rank has come here, without spinning."""
        request = self.comm.Ibarrier()
        wait_for(lambda: True if request.Test() else None)


def pack_json(data: Any) -> bytes:
    return json.dumps(data).encode()


def unpack_json(payload: np.ndarray) -> Any:
    return json.loads(payload.tobytes())


def world() -> Any:
    """MPI's world communicator; starts MPI."""
    return _mpi().COMM_WORLD


def split(comm: Any, group: int | None) -> Any:
    """This rank's group as a communicator of its own (None: in no group); collective."""
    return comm.Split(_mpi().UNDEFINED if group is None else group, comm.rank)


def launched_ranks() -> tuple[int, int] | None:
    """(rank, size) that an MPI launcher put into the environment, without starting MPI."""
    for rank, size in (
        ("PMI_RANK", "PMI_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMIX_RANK", "PMIX_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ):
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return None


def library_version() -> str:
    """The MPI library in one line."""
    return " ".join(_mpi().Get_library_version().split("\n")[0].split()).strip("\x00")


def _mpi() -> Any:
    from mpi4py import MPI

    return MPI
