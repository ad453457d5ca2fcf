"""Trainings as child processes on this machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Sequence
from typing import IO

from exarl.comm.threads import THREADS
from exarl.envs import child
from exarl.records.lock import PATIENT
from exarl.sweep.executors import Job, exarl_command


class Local:
    """``slots`` trainings at a time, of ``procs`` ranks each, which share the cores."""

    def __init__(self, slots: int, procs: int = 1) -> None:
        self.slots = slots
        self._procs = procs
        share = max(1, len(os.sched_getaffinity(0)) // (slots * procs))
        self._environ = thread_limits(share)
        self._started: list[TrainingProcess] = []

    def start(self, job: Job) -> TrainingProcess:
        started = TrainingProcess(exarl_command(job.words, self._procs), job, self._environ)
        self._started = [c for c in self._started if c.poll() is None] + [started]
        return started

    def close(self) -> None:
        for started in self._started:
            started.kill()


class TrainingProcess:
    """One command in its own session, which ends when this process dies.

    The output file is locked as long as any of the command's processes has it open, and the command
    starts once the lock is free: a process of a killed worker may still be writing its checkpoint
    into the same run directory.
    """

    def __init__(self, command: Sequence[str], job: Job, environ: dict[str, str]) -> None:
        self._command, self._environ, self._job = command, environ, job
        self._process: child.Child | None = None
        self._code: int | None = None
        job.output.parent.mkdir(parents=True, exist_ok=True)
        self._output: IO[bytes] | None = job.output.open("ab")
        self.poll()

    def poll(self) -> int | None:
        if self._code is None and self._process is None:
            self._start()
        if self._code is None and self._process is not None and child.ended(self._process):
            self._code = child.kill_all(self._process)
        return self._code

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        if self._process is not None and self._code is None:
            self._code = child.kill_all(self._process)
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._code is None:
            child.send(self._process, number)
        elif self._code is None:
            self._code = -number  # was never started
            self._let_go()

    def _start(self) -> None:
        assert self._output is not None
        try:
            fcntl.flock(self._output, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:
            pass  # a disk without locks
        output = self._output.fileno()
        self._process = child.start(
            child.tied(self._command),
            self._job.output,
            environ={**PATIENT, **self._environ},
            cwd=self._job.folder,
            stdout=output,
            stderr=output,
        )
        self._let_go()

    def _let_go(self) -> None:
        if self._output is not None:
            self._output.close()
            self._output = None


def thread_limits(share: int) -> dict[str, str]:
    """Variables that give a child's numeric libraries ``share`` threads, or the user's fewer."""
    limits = {}
    for name in THREADS:
        wanted = share
        with contextlib.suppress(ValueError):
            wanted = int(os.environ.get(name, share))
        limits[name] = str(min(share, wanted))
    return limits
