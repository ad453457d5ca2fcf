"""Trainings as tasks of a Ray cluster; each holds the child process that trains."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from exarl.comm.cluster import Cluster, cancel, outcome, resources, task
from exarl.sweep.executors import Job
from exarl.sweep.executors.local import Child, thread_limits

_POLL_S = 0.2


class Tasks:
    """``slots`` tasks at a time (default: what the cluster has cores for), each with ``procs`` cores.

    The cluster at ``address`` is joined, or one on this machine is started for the sweep. The study's
    folder must be on a disk that all its nodes share.
    """

    def __init__(self, slots: int | None, procs: int = 1, address: str | None = None) -> None:
        self._procs = procs
        self._cluster = Cluster(address)
        self._cluster.__enter__()  # until ``close``
        self.slots = slots or max(1, int(resources().get("CPU", 1)) // procs)

    def start(self, job: Job) -> Task:
        words = [*job.words, "--procs", str(self._procs)] if self._procs > 1 else [*job.words]
        output = job.output.absolute()
        _stop_file(output).unlink(missing_ok=True)
        arguments = words, str(output), str(job.folder), self._procs
        return Task(task(run_here, self._procs, *arguments), _stop_file(output))

    def close(self) -> None:
        self._cluster.close()


class Task:
    """A training in the cluster. It is asked to end by a file beside its output: a task that waits for
    a child does not hear Ray's own cancelling."""

    def __init__(self, reference: Any, stop: Path) -> None:
        self._reference, self._stop = reference, stop
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            self._code = outcome(self._reference, lost=1)  # its node is gone, or it was killed
            if self._code is not None:
                self._stop.unlink(missing_ok=True)
        return self._code

    def terminate(self) -> None:
        self._stop.parent.mkdir(parents=True, exist_ok=True)
        self._stop.touch()

    def kill(self) -> None:
        cancel(self._reference)


def run_here(words: list[str], output: str, folder: str, procs: int) -> int:
    """Run ``exarl WORDS`` as a child of this task, until it ends or is asked to; its exit code."""
    job = Job(words, Path(output), Path(folder))
    started = Child([sys.executable, "-P", "-m", "exarl", *words], job, thread_limits(procs))
    stop, told = _stop_file(job.output), False
    try:
        while (code := started.poll()) is None:
            if not told and stop.exists():
                started.terminate()
                told = True
            time.sleep(_POLL_S)
    finally:
        started.kill()
    return code


def _stop_file(output: Path) -> Path:
    return output.with_suffix(".stop")
