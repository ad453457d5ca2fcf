"""The few errors EXARL raises on purpose; the command line turns them into exit codes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ExarlError(Exception):
    """Base of every error EXARL raises itself. ``exit_code`` is what the command line returns."""

    exit_code = 1


class ConfigError(ExarlError):
    """Bad input from the user: one line that names the key, its origin and a remedy."""

    exit_code = 2


class StorageError(ExarlError):
    """A disk that is full, over its quota or gone."""


class CheckpointError(ExarlError):
    """A checkpoint that is missing, truncated or corrupt."""


class EnvironmentFailure(ExarlError):
    """An environment that broke its contract; ``kind`` is one of ``types.FAILURES``."""

    def __init__(self, message: str, kind: str = "raise") -> None:
        super().__init__(message)
        self.kind = kind


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the nearest of ``known``, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""
