"""Notes of a run for the process that launched it: ``exarl train --procs N`` or a batch script."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

RUN_FILE = "EXARL_RUN_FILE"
ERROR_FILE = "EXARL_ERROR_FILE"
END_FILE = "EXARL_END_FILE"
STOP_FILE = "EXARL_STOP_FILE"
"""Environment variables with the paths of the files; not set where no launcher reads them."""


def note_run(path: Path) -> None:
    """Note where the run is, so that a lost job can be resumed."""
    _write(RUN_FILE, str(path.absolute()), "w")


def note_error(message: str) -> bool:
    """Note why a rank failed; return whether the launcher shows this note, or that of an earlier rank.

    The first error counts: other ranks fail because of it, and their logs have their tracebacks.
    """
    _write(ERROR_FILE, message, "x")
    return ERROR_FILE in os.environ and Path(os.environ[ERROR_FILE]).exists()


def note_end(reason: str) -> None:
    """Note why the run has ended: launchers do not pass on exit codes when ranks are killed."""
    _write(END_FILE, reason, "w")


def noted_stop(signum: int) -> int:
    """The stop signal that the launcher of this job received, if it noted one, or else ``signum``.

    Some MPI launchers pass on no signal but SIGUSR1.
    """
    try:
        return int(Path(os.environ[STOP_FILE]).read_text(encoding="utf-8"))
    except (KeyError, OSError, ValueError):
        return signum


def _write(variable: str, text: str, mode: str) -> None:
    if variable in os.environ:
        with (
            contextlib.suppress(OSError),
            open(os.environ[variable], mode, encoding="utf-8") as file,
        ):
            file.write(text)
