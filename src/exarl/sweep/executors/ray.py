"""Trainings as tasks of a Ray cluster; each task runs the training as a child process."""

from __future__ import annotations

import time
from pathlib import Path

from exarl.comm.cluster import Cluster, cancel, outcome, resources, task
from exarl.sweep.executors import Job, exarl_command
from exarl.sweep.executors.local import TrainingProcess, thread_limits

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
        output = job.output.absolute()
        _stop_file(output).unlink(missing_ok=True)
        arguments = [*job.words], str(output), str(job.folder), self._procs
        return Task(task(run_here, self._procs, *arguments), _stop_file(output))

    def close(self) -> None:
        self._cluster.close()


class Task:
    """A training in the cluster. A file beside its output asks it to end: a task that waits for a child
    does not notice when Ray cancels it."""

    def __init__(self, reference: object, stop: Path) -> None:
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
    """Run ``exarl WORDS`` as a child of this task, until it ends or the stop file asks it to."""
    job = Job(words, Path(output), Path(folder))
    started = TrainingProcess(exarl_command(words, procs), job, thread_limits(procs))
    stop, asked = _stop_file(job.output), False
    try:
        while (code := started.poll()) is None:
            if not asked and stop.exists():
                started.terminate()
                asked = True
            time.sleep(_POLL_S)
    finally:
        started.kill()
    return code


def _stop_file(output: Path) -> Path:
    return output.with_suffix(".stop")
