"""Metrics on disk: progress.csv as a table, result.jsonl with all values, files for TensorBoard."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from exarl.records.directory import RunDirectory, open_regular, read_regular, writing
from exarl.records.events import EventWriter
from exarl.records.replacing import replacing
from exarl.records.sinks import MetricsSink
from exarl.types import FAILURES, Block, EpisodeInfo

FROM_BLOCKS: dict[str, Callable[[Block], int]] = {
    "env_restarts": lambda block: block.restarts,
    "simulations_total": lambda block: block.simulations,
}
"""Columns that add up over blocks: what one block adds. A line here makes a column of progress.csv,
result.jsonl and summary.json, counted over all learners and kept in checkpoints."""

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
    *FROM_BLOCKS,
    *(f"env_{kind}" for kind in FAILURES),
    "core_hours_simulated",
    "core_hours_learner",
    "core_hours_total",
    "time_total_s",
    "steps_per_s",
    "updates_per_s",
    "episode_reward_q25",
    "episode_reward_q75",
)
"""The columns of every row; the agent's own metrics follow."""

INFO = "info/"
"""How the columns of the numbers in ``info`` begin."""

_EVENTS_EVERY_S = 1.0
_FLUSH_EVERY_S = 1.0
_DENSE_ROWS = 1000
_LONGEST_HEADER = 1 << 16

log = logging.getLogger(__name__)


def is_timing(column: str) -> bool:
    """Whether a column measures the machine rather than the learning."""
    return column.startswith(("time_", "time/", "core_hours_")) or column in (
        "steps_per_s",
        "updates_per_s",
    )


def row_due(iteration: int) -> bool:
    """Whether an iteration gets a row: each up to 2,000, then every 2nd up to 4,000, every 4th ...

    It depends on the iteration only, so that equal runs have equal rows. Each doubling of a run's
    length adds about a thousand rows.
    """
    return iteration % (1 << max(0, (iteration // _DENSE_ROWS).bit_length() - 1)) == 0


class MetricsLog:
    """Appends rows to the files of a run, after the first ``kept`` rows of its earlier parts.

    TensorBoard and ``sinks`` get at most one row per second.
    """

    def __init__(
        self,
        run: RunDirectory,
        agent_metrics: Sequence[str],
        kept: int = 0,
        sinks: Sequence[MetricsSink] = (),
    ) -> None:
        self.rows = kept
        # A run that another version began keeps its columns.
        found = _header(run.progress) if kept else []
        self._columns = found or [*COLUMNS, *agent_metrics]
        with writing(run.path):
            self._csv = _open_keeping(run.progress, kept + 1 if found else 0)
            self._jsonl = _open_keeping(run.result, kept)
        self._writer = csv.writer(self._csv, lineterminator="\n")
        if not found:
            self._writer.writerow(self._columns)
        if kept and not found:
            log.warning("%s is damaged; its rows are copied from %s", run.progress, run.result.name)
            for row in read_rows(run.result):
                self._write_cells(row)
        with writing(run.path):
            self._sinks: list[MetricsSink] = [EventWriter(run.events), *sinks]
        self._run = run
        self._evaluations = run.evaluations
        self._flushed = self._drawn = time.monotonic()
        self._pending: Mapping[str, object] | None = None

    def write(self, row: Mapping[str, object]) -> None:
        self.rows += 1
        if new := [name for name in row if name.startswith(INFO) and name not in self._columns]:
            self._widen(new)
        self._write_cells(row)
        self._jsonl.write(json.dumps({k: _finite(v) for k, v in row.items()}) + "\n")
        self._pending = row
        now = time.monotonic()
        if now - self._drawn > _EVENTS_EVERY_S:
            self._drawn = now
            self._write_events()
        if now - self._flushed > _FLUSH_EVERY_S:
            self._flushed = now
            for file in (self._csv, self._jsonl):
                file.flush()  # not to the disk, which the learner would wait for

    def evaluated(
        self,
        steps: int,
        rewards: Sequence[float],
        lengths: Sequence[int],
        info: Sequence[EpisodeInfo] = (),
    ) -> None:
        """Add a row to evaluations.csv, which has one per evaluation during training."""
        row = {
            "timesteps_total": steps,
            "episodes": len(rewards),
            "reward_mean": mean(rewards),
            "reward_min": min(rewards),
            "reward_max": max(rewards),
            "length_mean": mean(lengths),
            **(told := info_columns(info)),
        }
        fresh = not self._evaluations.exists()
        columns = list(row) if fresh else _first_line(self._evaluations)
        with self._evaluations.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if fresh:
                writer.writerow(columns)
            writer.writerow([_cell(row.get(column)) for column in columns])
        shown = {"reward_mean": float(row["reward_mean"]), **told}
        for sink in self._sinks:
            sink.scalars(steps, {f"evaluation/{name}": value for name, value in shown.items()})

    def flush(self) -> None:
        """Write everything to disk; a checkpoint must not count rows that the files lack."""
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
        """Close the files of a run that failed, even if rows are lost; may follow ``close``."""
        closing = [*(sink.close for sink in self._sinks), self._csv.close, self._jsonl.close]
        for close in closing:
            with contextlib.suppress(OSError):
                close()

    def _widen(self, names: Sequence[str]) -> None:
        """Write the table again with more columns: what ``info`` holds is known once it comes."""
        self._columns = [*self._columns, *names]
        self._jsonl.flush()
        self._csv.close()
        path = self._run.progress
        with replacing(path) as aside, aside.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self._columns)
            for row in read_rows(self._run.result):
                writer.writerow([_cell(row.get(column)) for column in self._columns])
        self._csv = path.open("a", encoding="utf-8", newline="")
        self._writer = csv.writer(self._csv, lineterminator="\n")

    def _write_cells(self, row: Mapping[str, object]) -> None:
        self._writer.writerow([_cell(row.get(column)) for column in self._columns])

    def _write_events(self) -> None:
        row, self._pending = self._pending, None
        if row is not None:
            numbers = {k: float(v) for k, v in row.items() if isinstance(v, int | float)}
            for sink in self._sinks:
                sink.scalars(int(numbers["timesteps_total"]), numbers)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a ``result.jsonl`` up to the first damaged one."""
    rows: list[dict[str, Any]] = []
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):
                    break  # the last line of a run that was killed while writing it
                if not isinstance(row, dict):
                    break
                rows.append(row)
    return rows


def read_table(path: Path) -> list[dict[str, float]]:
    """The rows of a CSV file of numbers; empty where it cannot be read."""
    try:
        with io.StringIO(read_regular(path).decode("utf-8", "replace"), newline="") as file:
            return [
                {key: _number(value) for key, value in row.items() if key is not None}
                for row in csv.DictReader(file)
            ]
    except (OSError, csv.Error):
        return []


def mean(values: Iterable[float]) -> float:
    """The mean; NaN for no values."""
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else math.nan


def info_columns(episodes: Iterable[EpisodeInfo]) -> dict[str, float]:
    """The columns of the numbers in ``info`` over some episodes: the mean of their means and of their
    last values, the smallest and the largest of all values."""
    by_name: dict[str, list[Sequence[float]]] = {}
    for episode in episodes:
        for name, sums in episode.items():
            by_name.setdefault(name, []).append(sums)
    columns: dict[str, float] = {}
    for name, found in by_name.items():
        columns |= {
            f"{INFO}{name}_mean": mean(total / count for total, count, *_ in found),
            f"{INFO}{name}_last": mean(last for _, _, last, *_ in found),
            f"{INFO}{name}_min": min(least for *_, least, _ in found),
            f"{INFO}{name}_max": max(most for *_, most in found),
        }
    return columns


def _open_keeping(path: Path, lines: int) -> TextIO:
    """Open for appending after the first ``lines`` lines; later lines, which a resumed run writes
    again, are removed."""
    file = open(open_regular(path, os.O_RDWR | os.O_CREAT), "r+b")
    for _ in range(lines):
        file.readline()
    file.truncate(file.tell())
    return io.TextIOWrapper(file, encoding="utf-8", newline="")


def _header(path: Path) -> list[str]:
    """The columns of a table of rows; empty where it is damaged or missing."""
    names = _first_line(path)
    return names if set(COLUMNS[:2]) <= set(names) else []


def _first_line(path: Path) -> list[str]:
    """The columns of a table; empty where there is none."""
    try:
        with open(open_regular(path), "rb") as file:
            return next(csv.reader([file.readline(_LONGEST_HEADER).decode()]), [])
    except (OSError, ValueError, csv.Error):
        return []


def _cell(value: object) -> object:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except (TypeError, ValueError):
        return math.nan


def finite(row: Mapping[str, object], key: str) -> float | None:
    """The number at ``key``, or None if it is missing or not finite."""
    try:
        value = float(row[key])  # type: ignore[arg-type]  # TypeError is caught
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None
