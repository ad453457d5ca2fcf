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

from exarl.errors import ConfigError
from exarl.runs.directory import RunDirectory, read_json
from exarl.runs.panel import finite

_TAIL_BYTES = 1 << 16
_SETTLED_S = 60.0  # a summary older than the rows' file is believed after so long without a row


@dataclass(frozen=True)
class Look:
    """A run at one moment: its newest whole row, how old its rows' file is, and how it ended."""

    row: Mapping[str, Any]
    age_s: float
    summary: Mapping[str, Any]  # empty while the run goes on

    @property
    def ended(self) -> bool:
        return bool(self.summary)

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
    return Look(row, age, _final_summary(run, row, touched, age))


def last_row(path: Path) -> dict[str, Any]:
    """The newest whole row of a ``result.jsonl``; empty where there is none."""
    size = _TAIL_BYTES
    while True:
        try:
            with path.open("rb") as file:
                whole = file.seek(0, os.SEEK_END)
                file.seek(max(0, whole - size))
                lines = file.read().split(b"\n")[:-1]  # the last part is a line being written
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


def _final_summary(
    run: RunDirectory, row: Mapping[str, Any], touched: float, age: float
) -> dict[str, Any]:
    """The summary of a run that is at its end; empty for that of an earlier part of it."""
    written = _touched(run.summary)
    if written is None:
        return {}
    try:
        summary = read_json(run.summary)
    except ConfigError:
        return {}
    if not isinstance(summary, dict):
        return {}
    reached, seen = (finite(each, "training_iteration") or 0 for each in (summary, row))
    continued = seen > reached or (touched > written and age < _SETTLED_S)
    return {} if continued else summary


def _touched(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
