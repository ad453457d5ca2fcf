"""Runs read back from their directories, as far as they are whole."""

from __future__ import annotations

import csv
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exarl.errors import ConfigError
from exarl.runs.directory import RunDirectory, open_run, read_json
from exarl.runs.metrics import read_rows
from exarl.runs.panel import finite

DEPTH = 3
"""How far below a folder runs are looked for: a study has folders of trials with folders of seeds."""
QUIET_S = 60.0
"""A run without a summary whose rows are older than this is not called running."""


@dataclass(frozen=True)
class Run:
    """What a run directory holds; parts that are missing are empty, and ``notes`` say why."""

    path: Path
    values: Mapping[str, Any]  # "agent.gamma" -> 0.99
    origins: Mapping[str, str]
    manifest: Mapping[str, Any]
    summary: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    evaluations: Sequence[Mapping[str, float]]
    population: Sequence[Mapping[str, float]]
    state: str
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def last(self) -> Mapping[str, Any]:
        return self.rows[-1] if self.rows else {}

    def total(self, key: str) -> float | None:
        """A number of the summary or, where there is none, of the last row."""
        found = finite(self.summary, key)
        return finite(self.last, key) if found is None else found


def find_runs(paths: Sequence[str]) -> list[Path]:
    """The run directories named by ``paths``, each one or a folder of them; each once, in order.

    ConfigError where there is none.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        here = Path(path)
        if RunDirectory(here).exists():
            inside = [here]
        else:
            inside = sorted(_below(here, DEPTH))
            if not inside:
                open_run(here)  # says what is wrong with a path that is no folder
        for run in inside:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def _below(folder: Path, depth: int) -> Iterator[Path]:
    """The runs below ``folder``; runs within runs and hidden folders are passed over."""
    try:
        inner = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
    except OSError:
        return
    for entry in inner:
        path = Path(entry.path)
        run = RunDirectory(path)
        if run.exists() and (run.manifest.is_file() or run.result.is_file()):
            yield path
        elif depth > 1 and entry.is_dir():
            yield from _below(path, depth - 1)


def read_run(path: Path) -> Run:
    """Read a run; a part that is missing or damaged costs a note, not the run."""
    run, notes = RunDirectory(path), []

    def stored(file: Path) -> dict[str, Any]:
        try:
            data = read_json(file)
        except ConfigError as error:
            notes.append(str(error))
            return {}
        return data if isinstance(data, dict) else {}

    config, manifest = stored(run.config), stored(run.manifest)
    summary = stored(run.summary) if run.summary.is_file() else {}
    rows = [row for row in read_rows(run.result) if isinstance(row, dict)]
    if (lost := _lines(run.result) - len(rows)) > 0:
        notes.append(f"{run.result} is damaged: {lost} of its rows could not be read")
    reached, seen = (
        finite(each, "training_iteration") or 0 for each in (summary, (rows or [{}])[-1])
    )
    if seen > reached:
        summary = {}  # of the part before: the run was continued
    state, told = _state(run, summary, rows)
    notes += [told] if told else []
    origins = config.pop("origins", {})
    families = {name: part for name, part in config.items() if isinstance(part, dict)}
    return Run(
        path,
        {f"{family}.{key}": v for family, part in families.items() for key, v in part.items()},
        origins if isinstance(origins, dict) else {},
        manifest,
        summary,
        rows,
        read_table(run.evaluations),
        read_table(run.population),
        state,
        tuple(notes),
    )


def read_table(path: Path) -> list[dict[str, float]]:
    """The rows of a CSV file of numbers; none where there is no file."""
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            return [
                {key: _number(value) for key, value in row.items() if key is not None}
                for row in csv.DictReader(file)
            ]
    except (OSError, csv.Error):
        return []


def _state(
    run: RunDirectory, summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> tuple[str, str]:
    """How a run stands, in a few words, and a note where that is not the usual."""
    if summary:
        return f"ended ({summary.get('reason')})", ""
    if not rows:
        return "no rows", f"{run.path.name} has no rows yet"
    age = time.time() - run.result.stat().st_mtime
    if age < QUIET_S:
        return "running", f"{run.path.name} is still running: the page shows it so far"
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.result.stat().st_mtime))
    return "no summary", f"{run.path.name} has no summary: it was killed, or hangs, after {when}"


def _lines(path: Path) -> int:
    """How many whole lines a file has; the half line of a killed run does not count."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b""))


def _number(text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        return math.nan
