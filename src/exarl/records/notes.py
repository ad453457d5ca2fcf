"""Notes that a run leaves for the process that launched it (``exarl train --procs N``, a batch
script)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

RUN_FILE = "EXARL_RUN_FILE"
ERROR_FILE = "EXARL_ERROR_FILE"
END_FILE = "EXARL_END_FILE"
STOP_FILE = "EXARL_STOP_FILE"
"""Environment variables that name the files; unset where nobody asks."""


def note_run(path: Path) -> None:
    """Where the run is, so that a lost job can be resumed."""
    _leave(RUN_FILE, str(path.absolute()), "w")


def note_error(message: str) -> bool:
    """Why a rank failed; whether the launcher will show it, or what an earlier rank noted.

    The first one counts: the others fail because of it, and have their tracebacks in their logs.
    """
    _leave(ERROR_FILE, message, "x")
    return ERROR_FILE in os.environ and Path(os.environ[ERROR_FILE]).exists()


def note_end(reason: str) -> None:
    """Why the run has ended: launchers make what they like of exit codes when ranks are killed."""
    _leave(END_FILE, reason, "w")


def noted_stop(signum: int) -> int:
    """The stop signal that the launcher of this job received, if it noted one; else ``signum``.

    Some MPI launchers pass no other signal on than SIGUSR1.
    """
    try:
        return int(Path(os.environ[STOP_FILE]).read_text(encoding="utf-8"))
    except (KeyError, OSError, ValueError):
        return signum


def _leave(variable: str, text: str, mode: str) -> None:
    if variable in os.environ:
        with (
            contextlib.suppress(OSError),
            open(os.environ[variable], mode, encoding="utf-8") as file,
        ):
            file.write(text)
