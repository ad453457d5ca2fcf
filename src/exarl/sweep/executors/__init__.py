"""Where trainings run: each is a process of its own, whose end is polled for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol


class Job(NamedTuple):
    """A training to be started: words after ``exarl``, where its output goes, where it runs."""

    words: Sequence[str]
    output: Path
    folder: Path


class Handle(Protocol):
    """A training that was started. No method waits."""

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""

    def terminate(self) -> None:
        """Ask it to write a checkpoint and end."""

    def kill(self) -> None:
        """End it at once."""


class Executor(Protocol):
    """Runs so many trainings at a time as it has ``slots``."""

    slots: int

    def start(self, job: Job) -> Handle:
        """Start a training; there must be a slot for it."""

    def close(self) -> None:
        """Let go of everything; what still runs is ended."""
