"""Notes that a run leaves for the process that launched it (``exarl train --procs N``, a batch
script)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

RUN_FILE = "EXARL_RUN_FILE"
ERROR_FILE = "EXARL_ERROR_FILE"
END_FILE = "EXARL_END_FILE"
"""Environment variables that name the files; unset where nobody asks."""


def note_run(path: Path) -> None:
    """Where the run is, so that a lost job can be resumed."""
    _leave(RUN_FILE, str(path.absolute()), "w")


def note_error(message: str) -> None:
    """Why a rank failed. The first one counts: the others fail because of it."""
    _leave(ERROR_FILE, message, "x")


def note_end(reason: str) -> None:
    """Why the run has ended: launchers make what they like of exit codes when ranks are killed."""
    _leave(END_FILE, reason, "w")


def _leave(variable: str, text: str, mode: str) -> None:
    if variable in os.environ:
        with (
            contextlib.suppress(OSError),
            open(os.environ[variable], mode, encoding="utf-8") as file,
        ):
            file.write(text)
