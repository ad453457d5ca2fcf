"""Bytes between MPI ranks. Nothing is pickled, and no wait keeps a core busy."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

import numpy as np

from exarl.comm.messages import Payload
from exarl.comm.openmpi import prepare_library
from exarl.comm.transport import ANY, Transport
from exarl.comm.waiting import wait_for
from exarl.errors import ConfigError, install

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

log = logging.getLogger(__name__)

CHUNK = 1 << 30
"""Longest single message: MPI counts are 32 bits wide in many libraries still in use."""


class Channel(Transport):
    """Sends and receives byte arrays on a communicator of its own.

    A message of exactly ``chunk`` bytes is continued by the next one, so lengths need no header.
    The pieces sent and received are counted, so that ``close`` can receive every message.
    """

    def __init__(self, comm: Intracomm, chunk: int = CHUNK) -> None:
        self.comm = comm.Dup()
        self.rank: int = comm.rank
        self.size: int = comm.size
        self._chunk = chunk
        self._mpi = _mpi()
        self._posted: list[list[Request]] = []
        self._sent = np.zeros(self.size, np.int64)  # pieces, by rank
        self._received = 0

    def send(self, payload: Payload, dest: int | Iterable[int], tag: int) -> None:
        requests = self._start(payload, [dest] if isinstance(dest, int) else dest, tag)
        wait_for(lambda: True if self._mpi.Request.Testall(requests) else None)

    def post(self, payload: Payload, dest: int, tag: int) -> None:
        self._posted = [sending for sending in self._posted if not self._gone(sending)]
        self._posted.append(self._start(payload, [dest], tag))

    def close(self) -> None:
        """Return when every rank has called this and has received everything sent to it.

        Messages that no one has read by the end of the run are received and dropped: a long one keeps
        its sender waiting until there is a receiver. Nothing may be sent afterwards.
        """
        expected = np.zeros(1, np.int64)
        counting = self.comm.Ireduce_scatter_block(self._sent, expected)

        def all_received() -> bool | None:
            while self._poll_piece(ANY, self._mpi.ANY_TAG) is not None:
                pass
            if not counting.Test() or self._received < expected[0]:
                return None
            return True if all(self._gone(sending) for sending in self._posted) else None

        before = self._received
        wait_for(all_received)
        self._posted = []
        if dropped := self._received - before:
            log.info("%d messages had not been read when the run ended", dropped)

    def _start(self, payload: Payload, ranks: Iterable[int], tag: int) -> list[Request]:
        data = np.frombuffer(payload, np.uint8)
        pieces = [data[i : i + self._chunk] for i in range(0, len(data) + 1, self._chunk)]
        requests = []
        for rank in ranks:
            self._sent[rank] += len(pieces)
            requests += [self.comm.Isend([p, self._mpi.BYTE], dest=rank, tag=tag) for p in pieces]
        return requests

    def _gone(self, requests: list[Request]) -> bool:
        return bool(self._mpi.Request.Testall(requests))

    def poll(self, source: int = ANY, tag: int = 0) -> tuple[int, np.ndarray] | None:
        found = self._poll_piece(source, tag)
        if found is None or len(found[1]) < self._chunk:
            return found
        rank, pieces = found[0], [found[1]]
        while len(pieces[-1]) == self._chunk:
            pieces.append(wait_for(lambda: self._poll_piece(rank, tag))[1])
        return rank, np.concatenate(pieces)

    def _poll_piece(self, source: int, tag: int) -> tuple[int, np.ndarray] | None:
        status = self._mpi.Status()
        any_source = self._mpi.ANY_SOURCE if source == ANY else source
        message = self.comm.Improbe(source=any_source, tag=tag, status=status)
        if message is None:
            return None
        piece = np.empty(status.Get_count(self._mpi.BYTE), np.uint8)
        request = message.Irecv([piece, self._mpi.BYTE])
        wait_for(lambda: True if request.Test() else None)
        self._received += 1
        return status.Get_source(), piece

    def wait_for_all(self) -> None:
        """Return when every rank has called this, without busy waiting."""
        meet(self.comm)


def meet(comm: Intracomm, look: Callable[[], None] = lambda: None, brisk: float = 0.0) -> None:
    """Return when every rank of ``comm`` has called this, without busy waiting.

    To be called before a collective in its blocking form: a rank that enters it early would take the
    core from ranks that are still computing. ``look`` is called repeatedly meanwhile, and may raise;
    ``brisk`` is that of ``wait_for``.
    """
    request = comm.Ibarrier()

    def complete() -> bool | None:
        look()
        return True if request.Test() else None

    wait_for(complete, brisk)


def unname_shared_memory(comm: Intracomm) -> None:
    """Meet all ranks of ``comm``, then unlink the segments in /dev/shm that MPICH shares among them:
    every rank has them open by now.

    The memory is freed when its last user ends, also when ranks are killed. If there is no such file,
    the ranks only meet.
    """
    meet(comm)
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
            name = line.split(maxsplit=5)[-1]
            if name.startswith("/dev/shm/mpich_") and not name.endswith(" (deleted)"):
                Path(name).unlink(missing_ok=True)  # another rank may be faster


def split(comm: Intracomm, group: int | None) -> Intracomm:
    """The communicator of this rank's group (None: in no group); collective."""
    return cast("Intracomm", comm.Split(_mpi().UNDEFINED if group is None else group, comm.rank))


def same_machine(comm: Intracomm) -> Intracomm:
    """The communicator of the ranks of ``comm`` on this rank's machine; collective."""
    return cast("Intracomm", comm.Split_type(_mpi().COMM_TYPE_SHARED, comm.rank))


def on_this_machine(comm: Intracomm) -> list[int]:
    """The ranks of ``comm`` on this rank's machine, including itself; collective."""
    here = same_machine(comm)
    group = here.Get_group()
    ranks = group.Translate_ranks(list(range(here.size)), comm.Get_group())
    here.Free()
    return sorted(int(rank) for rank in ranks)


def launched_ranks() -> tuple[int, int] | None:
    """(rank, size) from the environment variables of an MPI launcher, without starting MPI."""
    for rank, size in (
        ("PMI_RANK", "PMI_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMIX_RANK", "PMIX_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ):
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return None


def find_mpiexec() -> str:
    """The launcher next to this Python, else the one on the path; ConfigError if there is none."""
    beside = Path(sys.executable).parent
    found = shutil.which("mpiexec", path=str(beside)) or shutil.which("mpiexec")
    if found is None:
        raise ConfigError(f"--procs needs mpiexec, of an MPI library: {install('mpi')}")
    return found


def launched_world() -> Intracomm | None:
    """The world communicator when an MPI launcher started several ranks, else None."""
    launched = launched_ranks()
    if launched is None or launched[1] == 1:
        return None
    try:
        world = _mpi().COMM_WORLD
    except (ImportError, RuntimeError) as error:
        raise ConfigError(
            f"started as rank {launched[0]} of {launched[1]}, but MPI cannot be loaded ({error});"
            f" there is one in {install('mpi')}"
        ) from error
    if world.size == 1:  # each would train alone, all in one run directory
        raise ConfigError(
            f"{launched[1]} tasks were started, but MPI knows of one: launcher and MPI library do not"
            " match; with srun, --mpi=pmi2 is for MPICH and --mpi=pmix for Open MPI"
        )
    return world


def threads_may_take_turns() -> bool:
    """Whether any thread may call MPI, as long as no two do so at once."""
    mpi = _mpi()
    return bool(mpi.Query_thread() >= mpi.THREAD_SERIALIZED)


def library_version() -> str:
    """The MPI library in one line."""
    return " ".join(_mpi().Get_library_version().split("\n")[0].split()).strip("\x00")


def finalize() -> None:
    """Finalize MPI if this process uses it; for one that ends without Python's own clean-up."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()


def _mpi() -> ModuleType:
    if "mpi4py.MPI" not in sys.modules:  # its import starts MPI
        prepare_library(os.environ)
    from mpi4py import MPI

    return MPI
