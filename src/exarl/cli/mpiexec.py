"""``--procs N``: run the same command under mpiexec, and pass on its signals and errors."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from exarl.comm.launcher import Launcher, find_launcher
from exarl.comm.threads import unlimited
from exarl.envs.child import how_it_ended, tied
from exarl.errors import DIVERGED, ConfigError
from exarl.records.directory import RunDirectory
from exarl.records.ending import write_failure
from exarl.records.lock import PATIENT
from exarl.records.notes import ERROR_FILE, RUN_FILE, STOP_FILE
from exarl.records.scratch import scratch
from exarl.records.seal import has_key
from exarl.records.signals import ECHO_S
from exarl.records.state import KILLED, state_of


def launch(
    procs: int, words: Sequence[str], max_restarts: int = 0, output: IO[bytes] | None = None
) -> int:
    """Run ``exarl WORDS`` on ``procs`` ranks and return the exit code of the job.

    The ranks' output goes to ``output`` if given. Stop signals are passed on to the ranks, which write
    a checkpoint and end. If a rank fails, its traceback is printed last, after the launcher's own
    messages. If this process is killed, the job is stopped. A job that fails is resumed up to
    ``max_restarts`` times, unless the cause is bad input, divergence or a stop signal.
    """
    launcher, cores = find_launcher(), len(os.sched_getaffinity(0))
    if procs > cores and output is None and "SLURM_JOB_ID" not in os.environ:
        sys.stderr.write(f"exarl: {procs} ranks share {cores} cores\n")
    with scratch("exarl-") as folder:
        run_file, stop = folder / "run", Stop(launcher, folder / "stop")
        received = stop.received
        notes = {RUN_FILE: str(run_file), STOP_FILE: str(stop.note)}
        for attempt in range(max_restarts + 1):
            error = folder / f"error{attempt}"
            environment = {**notes, ERROR_FILE: str(error)}
            code = _launch_once(launcher, procs, words, environment, stop.pass_on, output)
            if run_file.exists() and not error.exists():
                _note_lost(RunDirectory(Path(run_file.read_text(encoding="utf-8"))), code)
            if error.exists():
                sys.stderr.write("\n" + error.read_text(encoding="utf-8").rstrip() + "\n")
            if received and not error.exists() and (code or len(received) > 1):
                return 128 + received[0]  # mpiexec's own code may be 0 after a second Ctrl-C
            if code in (0, ConfigError.exit_code, DIVERGED) or received or not run_file.exists():
                return code
            if attempt < max_restarts:
                path = run_file.read_text(encoding="utf-8")
                sys.stderr.write(
                    f"exarl: the job was lost (exit code {code});"
                    f" restart {attempt + 1} of {max_restarts} from {path}\n"
                )
                # Without a stored key, the run that was just created has no seal.
                words = ["resume", path, *([] if has_key() else ["--trust"])]
                notes |= PATIENT
    return code


def _note_lost(run: RunDirectory, code: int) -> None:
    """Write the summary of a run in which a rank crashed, so that no rank could write it."""
    if code and state_of(run).name == KILLED:
        write_failure(run, f"a rank was lost: the job {how_it_ended(code)}")


class Stop:
    """Passes stop signals on to a job.

    ``received`` lists the signals so far; the file ``note`` tells the ranks which one came first.
    Open MPI's launcher kills its job soon after SIGINT or SIGTERM, before the ranks have written a
    checkpoint. It is sent SIGUSR1 instead, which it passes on; a second signal is sent unchanged.
    """

    def __init__(self, launcher: Launcher, note: Path) -> None:
        self.received: list[int] = []
        self.note = note
        self._gentle = bool(launcher.open_mpi)
        self._at = 0.0

    def pass_on(self, job: subprocess.Popen[bytes], number: int) -> None:
        first = not self.received
        self.received.append(number)
        if first:
            self._at = time.monotonic()
            self.note.write_text(str(number), encoding="utf-8")
        if self._gentle and time.monotonic() - self._at <= ECHO_S:
            number = signal.SIGUSR1
        job.send_signal(number)


def _launch_once(
    launcher: Launcher,
    procs: int,
    words: Sequence[str],
    environment: Mapping[str, str],
    pass_on: Callable[[subprocess.Popen[bytes], int], None],
    output: IO[bytes] | None = None,
) -> int:
    command = launcher.command(procs, [sys.executable, "-P", "-m", "exarl", *words])
    # In its own session the job does not also receive Ctrl-C from the terminal.
    before = _segments()
    job = subprocess.Popen(
        tied(command, launcher.stop_signal),
        env={**unlimited(os.environ), **environment},
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
    """The named shared-memory segments of MPI libraries."""
    names = ("mpich_*", "vader_segment*", "sm_segment*")
    return {path for name in names for path in Path("/dev/shm").glob(name)}


def _clean_up(segments: set[Path]) -> None:
    """Remove the segments of killed ranks that no living process uses."""
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
