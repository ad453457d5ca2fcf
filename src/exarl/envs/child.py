"""Programs started from a rank: unaware of its MPI job, ended with it, their output in a file."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from exarl.envs import keeper as keeper_program

_LOOK_EVERY_S = 0.002  # at whether a program has ended
_KEEPER_S = 10.0  # for a keeper to end its program; far more than it takes
_TIE = """\
import ctypes, os, sys
number, parent, program, *command = sys.argv[1:]
ctypes.CDLL(None).prctl(1, int(number))  # PR_SET_PDEATHSIG
if os.getppid() != int(parent):  # died before it was tied
    raise SystemExit(1)
try:
    os.execv(program, command)
except OSError as error:
    raise SystemExit(f"{program}: {error.strerror}")
"""

_LAUNCHERS = (
    *("PMI_", "PMI2_", "PMIX_", "MPI_LOCAL", "MPI_UNIVERSE", "MPIR_", "MPIEXEC_"),  # MPICH's family
    *("HYDI_", "HYDRA_", "MV2_COMM_WORLD_", "I_MPI_HYDRA_"),
    *("OMPI_", "OPAL_", "ORTE_", "PRTE_", "PRRTE_"),  # Open MPI
    *("PALS_", "ALPS_", "FLUX_TASK_"),
)
_ALLOWED = "OMPI_ALLOW_"  # what a user permits Open MPI's launcher
_SLURM_STEP = (
    *("SLURM_STEP", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_"),
    *("SLURM_SRUN", "SLURM_LAUNCH_NODE", "SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_PMI"),
    *("SLURM_MPI", "SLURM_DISTRIBUTION", "SLURM_UMASK"),
)


def scrubbed(variables: Mapping[str, str]) -> dict[str, str]:
    """``variables`` without what tells a program that it is a rank of a running MPI job.

    A program that inherited them would join, or wait for, ranks that know nothing of it, and a
    launcher would refuse to start. What describes a Slurm allocation as a whole stays, so that
    ``srun`` can start a step in it.
    """
    left_out = _LAUNCHERS + _SLURM_STEP
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(_ALLOWED) or not name.startswith(left_out)
    }


class Child(subprocess.Popen[bytes]):
    """A program that ``start`` or ``start_kept`` started."""

    lifeline: IO[bytes] | None = None  # to its keeper, where it has one


def tied(command: Sequence[str], number: int = signal.SIGTERM) -> list[str]:
    """``command`` so that it is sent ``number`` when the thread that starts it ends (on Linux).

    A moment of Python says so to the kernel and becomes the command. It could be said between fork and
    exec, but a process with threads, as JAX's, had better not run Python there.
    """
    if sys.platform != "linux":
        return list(command)
    words = [str(int(number)), str(os.getpid()), _found(command[0]), *command]
    return [sys.executable, "-I", "-S", "-c", _TIE, *words]


def start(
    command: Sequence[str],
    output: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    **options: Any,
) -> Child:
    """Start a program as the head of a session of its own, which ``kill_all`` ends as a whole.

    It knows nothing of this rank's MPI; ``environ`` is added to what it knows. It reads from nowhere,
    and what it writes is appended to the file ``output`` (None: goes to this process's stderr).
    ``options`` are Popen's and may say otherwise. OSError when it cannot be started.
    """
    options = {"stdin": subprocess.DEVNULL, **options}
    options["env"] = {**scrubbed(os.environ), **(environ or {})}
    with contextlib.ExitStack() as stack:
        if output is None:
            options.setdefault("stdout", _stderr())
        else:
            output.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(output.open("ab"))
            options = {"stdout": file, "stderr": file, **options}
        return Child(list(command), start_new_session=True, **options)


def start_kept(
    command: Sequence[str], output: Path | None = None, *, pass_fds: Sequence[int] = (), **more: Any
) -> Child:
    """Like ``start``, for a program that ends with this process, together with everything it has
    started, daemons included. (Other systems than Linux: only its session, by ``kill_all``.)"""
    if sys.platform != "linux":
        return start(command, output, pass_fds=pass_fds, **more)
    reader, writer = os.pipe()
    lifeline = os.fdopen(writer, "wb", buffering=0)
    try:
        words = [str(os.getpid()), str(reader), _found(command[0]), *command]
        keeper = [sys.executable, "-I", "-S", keeper_program.__file__, *words]
        process = start(keeper, output, pass_fds=(*pass_fds, reader), **more)
    except BaseException:
        lifeline.close()
        raise
    finally:
        os.close(reader)
    process.lifeline = lifeline
    return process


def send(process: Child, number: int) -> None:
    """Signal a program that ``start`` started and all processes of its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def kill_all(process: Child) -> int:
    """End a program and all that it started; its return code. Where a program has
    ended already, what it left is ended."""
    if (lifeline := process.lifeline) is not None:
        if not lifeline.closed:
            with lifeline, contextlib.suppress(OSError):  # its keeper has gone with it
                lifeline.write(b"!")
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_KEEPER_S)
    send(process, signal.SIGKILL)  # before the wait: its number is still its own
    return process.wait()


def end(process: Child, patience: float, grace: float) -> int:
    """End a program that was asked to end; its return code.

    After ``patience`` seconds it and all that it started get SIGTERM, which an MPI launcher passes on
    to its ranks, and ``grace`` seconds later SIGKILL; with a ``grace`` of 0, SIGKILL at once.
    """
    if not ends_within(process, patience) and grace:
        send(process, signal.SIGTERM)
        ends_within(process, grace)
    return kill_all(process)


def ends_within(process: Child, seconds: float) -> bool:
    """Whether a program has ended before ``seconds`` are over; see ``ended``."""
    deadline = time.monotonic() + seconds
    while not ended(process):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_EVERY_S)
    return True


def ended(process: Child) -> bool:
    """Whether a program has ended, without letting go of its number, so that ``kill_all`` still
    finds what it left."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def how_it_ended(code: int) -> str:
    """A return code in words: ``was killed by SIGSEGV``, ``ended with exit code 3``."""
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def _found(program: str) -> str:
    """Where a program is; FileNotFoundError when it is nowhere."""
    found = shutil.which(program)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    return found


def _stderr() -> int | None:
    try:
        return sys.__stderr__.fileno() if sys.__stderr__ is not None else None
    except (OSError, ValueError):  # a notebook, or a test that captures it
        return None
