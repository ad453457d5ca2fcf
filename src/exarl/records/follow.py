"""A run as another process or machine sees it, by its files alone.

Every call opens the files again, since only then does a network disk ask its server for changes, and
reads only their ends. So files that were cut, replaced or half written need no special care.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exarl.records.directory import RunDirectory, open_regular
from exarl.records.metrics import finite
from exarl.records.state import RUNNING, UNKNOWN, State, state_of

_TAIL_BYTES = 1 << 16
_SETTLED_S = 60.0  # without a row, after which a summary older than the rows is believed


@dataclass(frozen=True)
class Look:
    """A run at one moment: its newest whole row, the age of the file of rows, and its state."""

    row: Mapping[str, object]
    age_s: float
    state: State

    @property
    def summary(self) -> Mapping[str, Any]:
        """The summary; empty while the run goes on, and where it wrote none."""
        return self.state.summary or {}

    @property
    def ended(self) -> bool:
        return self.state.name not in (RUNNING, UNKNOWN)

    @property
    def patience_s(self) -> float:
        """Seconds without a new row after which the user is told, for a run of this speed."""
        seconds, rows = finite(self.row, "time_total_s"), finite(self.row, "training_iteration")
        pace = seconds / rows if seconds and rows else 0.0
        return max(60.0, 10 * pace)


def look(run: RunDirectory) -> Look:
    """The run as it is now; only reads."""
    row = last_row(run.result)
    touched = _touched(run.result) or _touched(run.config) or time.time()
    # The clock of another machine may be ahead: no age is negative.
    age = max(0.0, time.time() - touched)
    return Look(row, age, _believed(run, state_of(run), row, touched, age))


def last_row(path: Path) -> dict[str, object]:
    """The newest whole row of a ``result.jsonl``; empty where there is none."""
    size = _TAIL_BYTES
    while True:
        try:
            with open(open_regular(path), "rb") as file:
                whole = file.seek(0, os.SEEK_END)
                file.seek(max(0, whole - size))
                *lines, _ = (file.read() or b"").split(b"\n")  # the last one is being written
        except OSError:
            return {}
        if size < whole:
            lines = lines[1:]  # the first one is cut
        for line in reversed(lines):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                return row
        if size >= whole:
            return {}
        size *= 8


def _believed(
    run: RunDirectory, state: State, row: Mapping[str, object], touched: float, age: float
) -> State:
    """The state, or UNKNOWN if it comes from a summary without a part that may be out of date.

    Earlier versions of EXARL wrote such summaries, and so may a user.
    """
    written = _touched(run.summary)
    if state.summary is None or "part" in state.summary or written is None:
        return state
    reached, seen = (finite(each, "training_iteration") or 0 for each in (state.summary, row))
    continued = seen > reached or (touched > written and age < _SETTLED_S)
    return State(UNKNOWN) if continued else state


def _touched(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
