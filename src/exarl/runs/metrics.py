"""Metrics on disk: progress.csv for the eye, result.jsonl complete, TensorBoard for the browser."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from exarl.runs.directory import RunDirectory
from exarl.runs.events import EventWriter
from exarl.runs.sinks import Sink
from exarl.types import FAILURES

COLUMNS = (
    "training_iteration",
    "timesteps_total",
    "episodes_total",
    "episode_reward_mean",
    "episode_reward_min",
    "episode_reward_max",
    "episode_len_mean",
    "updates_total",
    "policy_lag_mean",
    "policy_lag_max",
    "env_restarts",
    *(f"env_{kind}" for kind in FAILURES),
    "time_total_s",
    "steps_per_s",
    "updates_per_s",
)
"""What every row holds; an agent's own metrics follow."""

_EVENTS_EVERY_S = 1.0
_FLUSH_EVERY_S = 1.0
_DENSE_ROWS = 1000


def is_timing(column: str) -> bool:
    """Whether a column measures the machine rather than the learning."""
    return column.startswith(("time_", "time/")) or column in ("steps_per_s", "updates_per_s")


def row_due(iteration: int) -> bool:
    """Whether an iteration gets a row: each up to 2,000, then every 2nd up to 4,000, every 4th ...

    A function of the iteration alone, so that equal runs have equal rows; a run of any length has
    about a thousand rows for each doubling of it.
    """
    return iteration % (1 << max(0, (iteration // _DENSE_ROWS).bit_length() - 1)) == 0


class MetricsLog:
    """Appends rows to the files of a run; ``kept`` rows of an earlier part of it stay.

    TensorBoard and ``sinks`` get a row a second at most.
    """

    def __init__(
        self,
        run: RunDirectory,
        agent_metrics: Sequence[str],
        kept: int = 0,
        sinks: Sequence[Sink] = (),
    ) -> None:
        self.rows = kept
        # A run begun by another version goes on with the columns it has.
        self._columns = (_header(run.progress) if kept else []) or [*COLUMNS, *agent_metrics]
        self._csv = _open_keeping(run.progress, kept + 1 if kept else 0)
        self._writer = csv.writer(self._csv, lineterminator="\n")
        if not kept:
            self._writer.writerow(self._columns)
        self._jsonl = _open_keeping(run.result, kept)
        self._sinks: list[Sink] = [EventWriter(run.events), *sinks]
        self._evaluations = run.evaluations
        self._flushed = self._drawn = time.monotonic()
        self._pending: Mapping[str, Any] | None = None

    def write(self, row: Mapping[str, Any]) -> None:
        self.rows += 1
        self._writer.writerow([_cell(row.get(column)) for column in self._columns])
        self._jsonl.write(json.dumps({k: _finite(v) for k, v in row.items()}) + "\n")
        self._pending = row
        now = time.monotonic()
        if now - self._drawn > _EVENTS_EVERY_S:
            self._drawn = now
            self._write_events()
        if now - self._flushed > _FLUSH_EVERY_S:
            self._flushed = now
            self.flush()

    def evaluated(self, steps: int, rewards: Sequence[float], lengths: Sequence[int]) -> None:
        """A row of evaluations.csv, which has one for each evaluation during training."""
        row = {
            "timesteps_total": steps,
            "episodes": len(rewards),
            "reward_mean": mean(rewards),
            "reward_min": min(rewards),
            "reward_max": max(rewards),
            "length_mean": mean(lengths),
        }
        fresh = not self._evaluations.exists()
        with self._evaluations.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if fresh:
                writer.writerow(row)
            writer.writerow(row.values())
        for sink in self._sinks:
            sink.scalars(steps, {"evaluation/reward_mean": float(row["reward_mean"])})

    def flush(self) -> None:
        """Hand everything to the operating system; a checkpoint must not know more than the files."""
        for file in (self._csv, self._jsonl):
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        self._write_events()
        for sink in self._sinks:
            sink.close()
        self._csv.close()
        self._jsonl.close()

    def abandon(self) -> None:
        """Close the files of a run that failed, whatever is left unwritten; also after ``close``."""
        closing = [*(sink.close for sink in self._sinks), self._csv.close, self._jsonl.close]
        for close in closing:
            with contextlib.suppress(OSError):
                close()

    def _write_events(self) -> None:
        row, self._pending = self._pending, None
        if row is not None:
            numbers = {k: float(v) for k, v in row.items() if isinstance(v, int | float)}
            for sink in self._sinks:
                sink.scalars(int(row["timesteps_total"]), numbers)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a ``result.jsonl``, as far as they are whole."""
    rows: list[dict[str, Any]] = []
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    rows.append(json.loads(line))
                except (ValueError, RecursionError):
                    break  # the last line of a run that was killed while writing it
    return rows


def mean(values: Iterable[float]) -> float:
    """The mean; NaN of nothing."""
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else math.nan


def _open_keeping(path: Path, lines: int) -> TextIO:
    """Open for appending after the first ``lines`` lines; the rest, of a lost future, is cut off."""
    if not lines or not path.is_file():
        return path.open("w", encoding="utf-8", newline="")
    file = path.open("r+", encoding="utf-8", newline="")
    for _ in range(lines):
        file.readline()
    file.seek(file.tell())
    file.truncate()
    return file


def _header(path: Path) -> list[str]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return next(csv.reader(file), [])


def _cell(value: Any) -> Any:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
