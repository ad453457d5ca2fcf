"""Runs read from their directories, as far as their files are intact."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exarl.errors import ConfigError
from exarl.records.directory import RunDirectory, open_run, read_json
from exarl.records.follow import look
from exarl.records.metrics import finite, read_rows, read_table
from exarl.records.state import FAILED, FINISHED, KILLED, RUNNING, STOPPED, State

DEPTH = 3
"""How deep below a folder runs are searched: a study has folders of trials with folders of seeds."""
QUIET_S = 60.0
"""Seconds without a new row after which a run without summary and lock counts as ended."""
NO_SUMMARY = "no summary"
"""The state of a run of a version without locks that writes no more rows."""
_WORDS = {FAILED: "failed", KILLED: "was killed"}


@dataclass(frozen=True)
class Run:
    """The content of a run directory; missing parts are empty, and ``notes`` say why."""

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
    stands: State

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def env(self) -> str:
        return str(self.values.get("learner.env", "unknown environment"))

    @property
    def last(self) -> Mapping[str, Any]:
        return self.rows[-1] if self.rows else {}

    def total(self, key: str) -> float | None:
        """A number from the summary or, without one, from the last row."""
        found = finite(self.summary, key)
        return finite(self.last, key) if found is None else found


def find_runs(paths: Sequence[str], depth: int = DEPTH) -> list[Path]:
    """The run directories in ``paths``, each a run or a folder of runs; each once, in order.

    ``depth``: how deep below a folder. ConfigError for a path without runs.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        here = Path(path)
        if RunDirectory(here).exists():
            inside = [here]
        else:
            inside = sorted(_below(here, depth))
            if not inside:
                open_run(here)  # raises the error for a path that is no folder
        for run in inside:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def _below(folder: Path, depth: int) -> Iterator[Path]:
    """The runs below ``folder``; hidden folders and runs within runs are skipped."""
    try:
        inner = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
    except OSError:
        return
    for entry in inner:
        path = Path(entry.path)
        run = RunDirectory(path)
        if run.exists() and (run.manifest.is_file() or run.result.is_file()):
            yield path
        elif depth > 1 and path.is_dir():
            yield from _below(path, depth - 1)


def read_run(path: Path, rows: Sequence[Mapping[str, Any]] | None = None) -> Run:
    """Read a run; for each part that is missing or damaged there is a note.

    ``rows``: some of its rows that the caller has read already; no others are read then.
    """
    run, notes = RunDirectory(path), []

    def stored(file: Path) -> dict[str, Any]:
        try:
            data = read_json(file)
        except ConfigError as error:
            notes.append(str(error))
            return {}
        return data if isinstance(data, dict) else {}

    config, manifest = stored(run.config), stored(run.manifest)
    if run.summary.is_file():
        stored(run.summary)  # a note if it is damaged
    if rows is None:
        rows = read_rows(run.result)
        if (lost := _lines(run.result) - len(rows)) > 0:
            notes.append(f"{run.result} is damaged: {lost} of its rows could not be read")
    stands = look(run).state
    state, note = _described(run, stands, rows)
    notes += [note] if note else []
    origins = config.pop("origins", {})
    families = {name: part for name, part in config.items() if isinstance(part, dict)}
    return Run(
        path,
        {f"{family}.{key}": v for family, part in families.items() for key, v in part.items()},
        origins if isinstance(origins, dict) else {},
        manifest,
        stands.summary or {},
        rows,
        read_table(run.evaluations),
        read_table(run.population),
        state,
        tuple(notes),
        stands,
    )


def describe(path: Path) -> dict[str, Any]:
    """The entries of a run's line; None for what is not known."""
    run = RunDirectory(path)
    seen = look(run)
    try:
        learner = learner_part(run)
    except ConfigError:
        learner = {}
    last = {**seen.row, **seen.summary}
    reward = seen.summary.get("last_reward_mean", seen.row.get("episode_reward_mean"))
    evaluations = read_table(run.evaluations)
    return {
        "run": str(path),
        "state": seen.state.name,
        "cause": seen.state.cause,
        "agent": learner.get("agent"),
        "env": learner.get("env"),
        "workflow": learner.get("workflow"),
        "steps": int(finite(last, "timesteps_total") or 0),
        "reward": finite({"reward": reward}, "reward"),
        "evaluation": finite(evaluations[-1], "reward_mean") if evaluations else None,
        "age_s": round(seen.age_s, 1),
    }


def learner_part(run: RunDirectory) -> Mapping[str, Any]:
    """The learner's parameters of a stored run."""
    config = read_json(run.config)
    part = config.get("learner") if isinstance(config, dict) else None
    if not isinstance(part, dict):
        raise ConfigError(f"{run.config} is damaged: the parameters of the learner are missing")
    return part


def _described(
    run: RunDirectory, stands: State, rows: Sequence[Mapping[str, Any]]
) -> tuple[str, str]:
    """The state of a run in a few words, and a note unless it ended normally."""
    name = run.path.name
    if stands.name in (FINISHED, STOPPED):
        return str(stands), ""
    if stands.name in (FAILED, KILLED):
        return str(stands), f"{name} {_WORDS[stands.name]}: {stands.cause}"
    if not rows:
        return "no rows", f"{name} has no rows yet"
    touched = run.result.stat().st_mtime
    if stands.name == RUNNING or time.time() - touched < QUIET_S:
        return "running", f"{name} is still running: the page shows its results so far"
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(touched))
    return NO_SUMMARY, f"{name} has no summary: it was killed, or hangs, after {when}"


def _lines(path: Path) -> int:
    """The number of complete lines of a file; a killed run may leave an incomplete last one."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b""))
