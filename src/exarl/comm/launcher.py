"""MPI launchers: which one is installed, and how to call it."""

from __future__ import annotations

import functools
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from exarl.comm.channel import find_mpiexec
from exarl.comm.openmpi import open_mpi_version

_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Launcher:
    """An ``mpiexec``; ``open_mpi`` is the major version if it belongs to Open MPI, else 0."""

    path: str
    open_mpi: int = 0

    @property
    def stop_signal(self) -> int:
        """The signal that this launcher passes on to its ranks without killing them."""
        return signal.SIGUSR1 if self.open_mpi else signal.SIGTERM

    def command(self, ranks: int, words: Sequence[str]) -> list[str]:
        """The command that runs ``words`` on ``ranks`` ranks, which may be more than there are cores.

        MPICH neither counts cores nor binds ranks to them. Open MPI does both by default, and a rank
        that is bound to one core could not use its share of threads.
        """
        options = ("--map-by", ":OVERSUBSCRIBE", "--bind-to", "none") if self.open_mpi else ()
        return [self.path, *options, "-n", str(ranks), *words]


def find_launcher() -> Launcher:
    """The launcher that ``find_mpiexec`` finds, and its MPI library."""
    found = find_mpiexec()
    return Launcher(found, _open_mpi(found))


@functools.cache
def _open_mpi(path: str) -> int:
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0  # it will fail with a better message when it is used
    return open_mpi_version(answer.stdout)
