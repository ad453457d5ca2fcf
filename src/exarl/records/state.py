"""The state of a run, from its files alone.

``lock.json`` names the process that runs it, ``summary.json`` says how its last part ended. Both name
the part they belong to, so that a summary of an earlier part is not mistaken for the end of this one.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exarl.errors import ConfigError
from exarl.records.alive import is_alive
from exarl.records.directory import RunDirectory, read_json
from exarl.records.lock import named, read_holder

RUNNING, FINISHED, STOPPED, FAILED, KILLED = "running", "finished", "stopped", "failed", "killed"
DIVERGENCE = "divergence"
"""The reason in the summary of a run whose losses or weights were not finite."""
UNKNOWN = "unknown"
"""The state of a run without lock and summary: an early version of EXARL wrote no lock."""
STATES = (RUNNING, FINISHED, STOPPED, FAILED, KILLED, UNKNOWN)


@dataclass(frozen=True)
class State:
    """The state of a run and its cause: the process that runs it, why it stopped, or its last error."""

    name: str
    cause: str = ""
    summary: Mapping[str, Any] | None = None  # of the part that ended; None while one goes on

    def __str__(self) -> str:
        if self.name in (FINISHED, STOPPED):
            return f"{self.name} ({self.cause})"
        return f"{self.name}: {self.cause}" if self.name == FAILED else self.name


def state_of(run: RunDirectory) -> State:
    """The state of a run now; only reads."""
    holder = read_holder(run)
    summary = read_summary(run)
    if holder is not None and (summary is None or summary.get("part") != holder.get("part")):
        if "error" in holder:
            return State(FAILED, str(holder["error"]))
        if is_alive(holder, run.lock, time.time()):
            return State(RUNNING, named(holder))
        return State(KILLED, f"{named(holder)} is gone and wrote no summary")
    if summary is None:
        return State(UNKNOWN)
    reason = str(summary.get("reason"))
    name = ended_as(reason)
    return State(name, str(summary.get("error")) if name == FAILED else reason, summary)


def ended_as(reason: str) -> str:
    """The state of a run that ended for this reason."""
    if reason in (FAILED, DIVERGENCE):
        return FAILED
    return STOPPED if reason in signal.Signals.__members__ else FINISHED


def read_summary(run: RunDirectory) -> dict[str, Any] | None:
    """The summary of the last part that ended; None where it is missing or damaged."""
    try:
        summary = read_json(run.summary)
    except ConfigError:
        return None
    return summary if isinstance(summary, dict) else None
