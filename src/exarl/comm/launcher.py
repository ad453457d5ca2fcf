"""MPI launchers: which one is there, and how each wants to be called."""

from __future__ import annotations

import functools
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from exarl.comm.mpi import find_mpiexec
from exarl.comm.openmpi import open_mpi_version

_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Launcher:
    """An ``mpiexec``; ``open_mpi`` is its major version if it is Open MPI's, else 0."""

    path: str
    open_mpi: int = 0

    @property
    def stop_signal(self) -> int:
        """The signal that this launcher passes on to its ranks without killing them."""
        return signal.SIGUSR1 if self.open_mpi else signal.SIGTERM

    def command(self, ranks: int, words: Sequence[str]) -> list[str]:
        """``words`` on ``ranks`` ranks, which may be more than there are cores.

        MPICH neither counts cores nor binds ranks to them. Open MPI does both unless told otherwise,
        and a rank that is bound to one core could not use its share of threads.
        """
        options = ("--map-by", ":OVERSUBSCRIBE", "--bind-to", "none") if self.open_mpi else ()
        return [self.path, *options, "-n", str(ranks), *words]


def find_launcher() -> Launcher:
    """The launcher that ``find_mpiexec`` finds, and whose it is."""
    found = find_mpiexec()
    return Launcher(found, _open_mpi(found))


@functools.cache
def _open_mpi(path: str) -> int:
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0  # what is wrong with it will show when it is used
    return open_mpi_version(answer.stdout)
