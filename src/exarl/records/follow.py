"""A run seen from outside, by its files alone: from another process, or another machine.

Each look opens the files anew, which is when a network disk asks its server for what is new, and
reads only their ends; a file that is cut, replaced or half written needs no special care then.
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
_SETTLED_S = 60.0  # a summary older than the rows' file is believed after so long without a row


@dataclass(frozen=True)
class Look:
    """A run at one moment: its newest whole row, how old its rows' file is, and how it stands."""

    row: Mapping[str, Any]
    age_s: float
    state: State

    @property
    def summary(self) -> Mapping[str, Any]:
        """Empty while the run goes on, and where it wrote none."""
        return self.state.summary or {}

    @property
    def ended(self) -> bool:
        return self.state.name not in (RUNNING, UNKNOWN)

    @property
    def patience_s(self) -> float:
        """How long a run of this pace may be silent before that is worth a word."""
        seconds, rows = finite(self.row, "time_total_s"), finite(self.row, "training_iteration")
        pace = seconds / rows if seconds and rows else 0.0
        return max(60.0, 10 * pace)


def look(run: RunDirectory) -> Look:
    """The run as of now; nothing is touched."""
    row = last_row(run.result)
    touched = _touched(run.result) or _touched(run.config) or time.time()
    # Of two machines' clocks one may be ahead: nothing is younger than now.
    age = max(0.0, time.time() - touched)
    return Look(row, age, _believed(run, state_of(run), row, touched, age))


def last_row(path: Path) -> dict[str, Any]:
    """The newest whole row of a ``result.jsonl``; empty where there is none."""
    size = _TAIL_BYTES
    while True:
        try:
            with open(open_regular(path), "rb") as file:
                whole = file.seek(0, os.SEEK_END)
                file.seek(max(0, whole - size))
                lines = (file.read() or b"").split(b"\n")[
                    :-1
                ]  # the last part is a line being written
        except OSError:
            return {}
        if size < whole:
            lines = lines[1:]  # cut off at its beginning
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
    run: RunDirectory, state: State, row: Mapping[str, Any], touched: float, age: float
) -> State:
    """The state but for a summary that names no part: one of an earlier version of EXARL, or one made
    by hand, tells nothing of a part that began after it."""
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
