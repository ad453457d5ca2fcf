"""The few errors EXARL raises on purpose; the command line turns them into exit codes."""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable, Sequence

MIN_PART = 3
"""Letters from which on a part of a name may stand for it."""

MAX_SHOWN = 10
"""Mistakes that one message names."""

DIVERGED = 3
"""The exit code of a run that diverged; it ends in order, and so by no error."""


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


class Stopped(ExarlError):
    """A stop signal that came before there was anything to keep."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name} before the run began")
        self.exit_code = 128 + signum


class EnvironmentFailure(ExarlError):
    """An environment that broke its contract; ``kind`` is one of ``types.FAILURES``."""

    def __init__(self, message: str, kind: str = "raise") -> None:
        super().__init__(message)
        self.kind = kind


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the nearest of ``known``, or an empty string.

    Upper and lower case count as the same, and a part of a name is near to the whole.
    """
    by_lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    if not close and len(name) >= MIN_PART:
        close = sorted((one for one in by_lower if name.lower() in one), key=len)
    return f"; did you mean '{by_lower[close[0]]}'?" if close else ""


def install(extra: str) -> str:
    """The command that installs an extra of EXARL's."""
    return f"pip install 'exarl[{extra}]'"


def as_one(errors: Sequence[ConfigError]) -> ConfigError:
    """The error that says what all of ``errors`` (at least one) say, each message once."""
    messages = list(dict.fromkeys(str(error) for error in errors))
    shown = messages[:MAX_SHOWN]
    if len(messages) > MAX_SHOWN:
        shown.append(f"{len(messages) - MAX_SHOWN} more")
    return ConfigError(". Also: ".join(shown).replace("?. Also:", "? Also:"))
