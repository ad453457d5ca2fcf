"""Where trainings run: each in its own process, which is polled for its end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol


class Job(NamedTuple):
    """A training to start: the arguments of ``exarl``, the file for its output, its directory."""

    words: Sequence[str]
    output: Path
    folder: Path


def exarl_command(words: Sequence[str], procs: int = 1) -> list[str]:
    """The command that runs ``exarl WORDS`` with this interpreter, on ``procs`` ranks."""
    ranks = ["--procs", str(procs)] if procs > 1 else []
    return [sys.executable, "-P", "-m", "exarl", *words, *ranks]


class Handle(Protocol):
    """A started training. No method blocks."""

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""

    def terminate(self) -> None:
        """Ask it to write a checkpoint and end."""

    def kill(self) -> None:
        """End it at once."""


class Executor(Protocol):
    """Runs up to ``slots`` trainings at a time."""

    slots: int

    def start(self, job: Job) -> Handle:
        """Start a training; the caller makes sure that a slot is free."""

    def close(self) -> None:
        """End the trainings that still run and release all resources."""
