"""The terminal that shows the output of a rank, if an MPI launcher is between them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TextIO

LAUNCHERS = (
    "mpiexec", "mpiexec.hydra", "mpirun", "hydra_pmi_proxy",  # MPICH, Intel MPI
    "orterun", "orted", "prterun", "prted", "prte", "mpiexec.openmpi", "mpirun.openmpi",
)  # fmt: skip
"""Names of the processes between a rank and the user's terminal on the same machine."""
_NAME_LENGTH = 15  # characters of a process's name that Linux keeps


def launcher_terminal(stream: TextIO) -> str | None:
    """The terminal device on which an MPI launcher shows what this rank writes to ``stream``.

    None if ``stream`` is no pipe, no launcher started this process, the launcher's error output is no
    terminal, or it runs on another machine. Works on Linux.
    """
    try:
        mode = os.fstat(stream.fileno()).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            return None
        launcher = None
        process = os.getppid()
        while _name(process) in {name[:_NAME_LENGTH] for name in LAUNCHERS}:
            launcher, process = process, _parent(process)
        if launcher is None:
            return None
        device = str(Path(f"/proc/{launcher}/fd/2").readlink())
        return device if stat.S_ISCHR(Path(device).stat().st_mode) and columns(device) else None
    except (OSError, ValueError, AttributeError):
        return None


def columns(device: str) -> int | None:
    """The present width of a terminal; None if there is no such terminal."""
    try:
        handle = os.open(device, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            return os.get_terminal_size(handle).columns or None
        finally:
            os.close(handle)
    except (OSError, ValueError):
        return None


def _name(process: int) -> str:
    return Path(f"/proc/{process}/comm").read_text(encoding="utf-8", errors="replace").strip()


def _parent(process: int) -> int:
    text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    return int(text.rpartition(")")[2].split()[1])
