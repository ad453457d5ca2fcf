"""``--procs N``: the same command under mpiexec, with its signals and its error passed on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from exarl.comm.mpi import find_mpiexec
from exarl.envs.child import tied
from exarl.errors import ConfigError
from exarl.runs.notes import ERROR_FILE, RUN_FILE


def launch(
    procs: int, words: Sequence[str], max_restarts: int = 0, output: IO[bytes] | None = None
) -> int:
    """Run ``exarl WORDS`` on so many ranks; the exit code of the job.

    What the ranks print goes to ``output`` if given.

    Stop signals go to the ranks, which checkpoint and end. When a rank fails, its traceback is
    written last, after whatever the launcher has to say. When this process is killed, the job is told
    to stop. A job that was lost for another reason than
    bad input or a stop signal is resumed up to ``max_restarts`` times.
    """
    with tempfile.TemporaryDirectory(prefix="exarl-") as scratch:
        run_file, told = Path(scratch) / "run", []

        def pass_on(job: subprocess.Popen[bytes], number: int) -> None:
            told.append(number)
            job.send_signal(number)

        for attempt in range(max_restarts + 1):
            error = Path(scratch) / f"error{attempt}"
            code = _launch_once(
                procs, words, {ERROR_FILE: str(error), RUN_FILE: str(run_file)}, pass_on, output
            )
            if error.exists():
                sys.stderr.write("\n" + error.read_text(encoding="utf-8").rstrip() + "\n")
            if told and not error.exists() and (code or len(told) > 1):
                return 128 + told[0]  # whatever mpiexec makes of it: 0 after a second Ctrl-C
            if code in (0, ConfigError.exit_code) or told or not run_file.exists():
                return code
            if attempt < max_restarts:
                path = run_file.read_text(encoding="utf-8")
                sys.stderr.write(
                    f"exarl: the job was lost (exit code {code});"
                    f" restart {attempt + 1} of {max_restarts} from {path}\n"
                )
                words = ["resume", path]
    return code


def _launch_once(
    procs: int,
    words: Sequence[str],
    environment: Mapping[str, str],
    pass_on: Callable[[subprocess.Popen[bytes], int], None],
    output: IO[bytes] | None = None,
) -> int:
    command = [find_mpiexec(), "-n", str(procs), sys.executable, "-m", "exarl", *words]
    # A session of its own keeps the terminal's Ctrl-C from reaching the ranks twice.
    before = _segments()
    job = subprocess.Popen(
        tied(command),
        env={**os.environ, **environment},
        start_new_session=True,
        stdout=output,
        stderr=output,
    )
    previous = {
        number: signal.signal(number, lambda received, _: pass_on(job, received))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    }
    try:
        code = job.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if job.poll() is None:
            job.kill()
        if job.returncode:
            _clean_up(_segments() - before)
    return code if code >= 0 else 128 - code


def _segments() -> set[Path]:
    """Shared memory that MPI libraries give a name."""
    names = ("mpich_*", "vader_segment*", "sm_segment*")
    return {path for name in names for path in Path("/dev/shm").glob(name)}


def _clean_up(segments: set[Path]) -> None:
    """Remove what ranks that were killed left behind, as far as no living process uses it."""
    if not segments:
        return
    used = ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            used += maps.read_text(errors="replace")
    for path in segments:
        if str(path) not in used:
            with contextlib.suppress(OSError):
                path.unlink()
