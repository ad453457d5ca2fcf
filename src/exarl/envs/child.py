"""Starting a program as a child: free of this job's MPI, gone when this process is."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>

_LAUNCHERS = (
    *("PMI_", "PMI2_", "PMIX_", "MPI_LOCAL", "MPIEXEC_", "HYDI_", "HYDRA_"),  # MPICH's family
    *("OMPI_", "OPAL_", "ORTE_", "PRTE_", "PRRTE_"),  # Open MPI
    *("MV2_COMM_WORLD_", "I_MPI_HYDRA_", "PALS_", "ALPS_"),
)
_SLURM_STEP = (
    *("SLURM_STEP", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS"),
    *("SLURM_TASK_PID", "SLURM_SRUN_COMM", "SLURM_LAUNCH_NODE", "SLURM_CPU_BIND"),
    *("SLURM_MEM_BIND", "SLURM_MPI_TYPE", "SLURM_DISTRIBUTION", "SLURM_UMASK"),
)


def scrubbed_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` without what tells a program that it is a rank of a job already running.

    A program that finds these joins that job, or a launcher refuses to start inside it. What describes
    a Slurm allocation stays, so that ``srun`` can start a step in it.
    """
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(_LAUNCHERS) and not name.startswith(_SLURM_STEP)
    }


def start(
    command: Sequence[str],
    *,
    output: Path | None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int | IO[Any] = subprocess.DEVNULL,
    stdout: int | IO[Any] | None = None,
) -> subprocess.Popen[bytes]:
    """Start ``command`` in a session of its own, with what it writes appended to ``output``.

    ``environ`` is added to a scrubbed environment. ``stdout`` goes elsewhere if given. The child is
    told to end (SIGTERM) when the thread that started it does. OSError when it cannot be started.
    """
    file: IO[bytes] | None = output.open("ab") if output is not None else None
    try:
        return subprocess.Popen(
            list(command),
            env={**scrubbed_environment(os.environ), **(environ or {})},
            cwd=cwd,
            stdin=stdin,
            stdout=stdout if stdout is not None else file,
            stderr=file,
            start_new_session=True,
            preexec_fn=_end_with_parent(),  # noqa: PLW1509 - it calls nothing but prctl and kill
        )
    finally:
        if file is not None:
            file.close()


def end(process: subprocess.Popen[bytes], patience: float, grace: float = 2.0) -> int:
    """The exit code of a child that was asked to go, or must be made to.

    After ``patience`` seconds it and whatever it started in its session get SIGTERM, which an MPI
    launcher passes on to its ranks, and ``grace`` seconds later SIGKILL.
    """
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    if process.poll() is None:
        send(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    send(process, signal.SIGKILL)  # also those it left behind
    return process.wait()


def send(process: subprocess.Popen[bytes], number: int) -> None:
    """Signal a child and whatever it started in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _end_with_parent() -> Callable[[], None] | None:
    """What a child does first to be sent SIGTERM when its parent dies; None but on Linux."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()  # nothing is loaded in the child

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # died before it was tied
            os.kill(os.getpid(), signal.SIGKILL)

    return tie
