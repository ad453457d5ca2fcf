"""``exarl runs``: list the runs below a folder and their states."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from exarl.cli import words as line
from exarl.cli.watch import span
from exarl.config import LearnerConfig
from exarl.records.state import FAILED
from exarl.report.read import describe, find_runs

HELP = """\
usage: exarl runs [FOLDER] [--json]

Lists the runs in FOLDER and in the folders below it, the most recently active first.

  FOLDER   default: results_dir if it exists, otherwise the working folder
  --json   print JSON, with full paths and causes

state       running, finished, stopped (by a signal), failed, killed (the process ended without
            writing a summary), unknown (neither summary nor lock: written by an early version of EXARL)
reward      mean reward of the last episodes
evaluation  mean reward of the last evaluation (eval_interval)
age         time since the last row of metrics
"""
_AT_ONCE = 16  # requests to a network disk overlap
_LONGEST = 60


def runs(words: list[str]) -> int:
    as_json = line.take_flag(words, "json")
    given = line.take_path(words, "folder") if words else None
    line.nothing_left(words)
    folder = given or usual_folder()

    paths = find_runs([folder])
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = sorted(pool.map(describe, paths), key=lambda each: float(each["age_s"]))
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        sys.stdout.write(table(found, folder))
    return 0


def usual_folder() -> str:
    usual = LearnerConfig().output_dir
    return usual if Path(usual).is_dir() else "."


def table(found: Sequence[Mapping[str, Any]], folder: str) -> str:
    """The runs as a table of text; paths are relative to ``folder``."""
    head = ("run", "state", "agent", "env", "steps", "reward", "evaluation", "age", "")
    rows = [head, *(_cells(each, folder) for each in found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    right = {"steps", "reward", "evaluation", "age"}
    lines = [
        "  ".join(
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(row, widths, head, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def _cells(run: Mapping[str, Any], folder: str) -> tuple[str, ...]:
    path = Path(run["run"])
    name = str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
    cause = str(run["cause"]) if run["state"] == FAILED else ""
    cells = (
        path.name if name == "." else name,
        str(run["state"]),
        str(run["agent"] or "-"),
        str(run["env"] or "-"),
        f"{run['steps']:,}",
        *("-" if run[key] is None else f"{run[key]:.4g}" for key in ("reward", "evaluation")),
        span(run["age_s"]),
        cause if len(cause) <= _LONGEST else f"{cause[: _LONGEST - 3]}...",
    )
    return tuple("".join(c if c.isprintable() else "?" for c in cell) for cell in cells)
