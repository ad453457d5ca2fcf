"""The agents of a population: their parameters and seeds, and the table of how they did."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from exarl.config import LearnerConfig, Schema, check, schema_of
from exarl.config.grammar import combinations, read_grid
from exarl.errors import ConfigError, did_you_mean
from exarl.records.directory import expand, reason

SHAPING = ("updates_per_step", "priority_scale")
"""Numbers of an agent that the shape of the program depends on."""

RESULT = "reward_mean"
"""The column of results, which is not part of a setting."""

Member = dict[str, float]
"""The seed of one agent of a population, and its swept parameters."""


def members(
    sweep: str, n_seeds: int, seed: int, parameters: Schema, table: Path | None = None
) -> list[Member]:
    """The agents that ``sweep`` describes, checked against the agent's ``parameters``.

    ``sweep`` is a grid (``name=a,b;name=low:high:COUNT[:log]``) or names a file of settings
    (``@points.csv``). Each setting has the seeds ``seed``, ``seed + 1``, ..., or the one in its row.
    ``table`` is the run's own table: once it exists the file may be missing, but not different.
    """
    file = expand(sweep[1:]) if sweep.startswith("@") else None
    begun = read_table(table) if file and table and table.is_file() else None
    if file and begun and not file.is_file():
        return checked(begun, parameters, str(table))
    settings = combinations(read_grid(sweep)) if file is None else read_table(file)
    if "seed" in settings[0] and n_seeds > 1:
        raise ConfigError("n_seeds is for settings without seeds; those of sweep have their own")
    found = [
        {"seed": number, **setting}  # a setting's own seed takes precedence
        for setting in settings
        for number in range(seed, seed + n_seeds)
    ]
    found = checked(found, parameters, str(file or "sweep"))
    if begun and _cells(found) != _cells(begun):
        raise ConfigError(f"{file} is not what this run began with; choose another run_dir")
    return found


def checked(found: Sequence[Member], parameters: Schema, origin: str) -> list[Member]:
    """The members with seeds as whole numbers; ConfigError for what cannot be swept."""
    known = [n for n, p in parameters.items() if p.type in (float, float | None)]
    known = [name for name in known if name not in SHAPING]
    for name in found[0].keys() - {"seed"}:
        if name not in known:
            hint = did_you_mean(name, known) or f" (there are {', '.join(known)})"
            raise ConfigError(f"sweep: '{name}' is no number that can be swept{hint}")
        for value in {member[name] for member in found}:
            check(parameters[name], value, origin)
    seed = schema_of(LearnerConfig)["seed"]
    return [{**member, "seed": check(seed, _whole(member["seed"]), origin)} for member in found]


def table_of(found: Sequence[Member], rewards: Iterable[float]) -> str:
    """One row per member: seed, swept parameters, mean return of its last episodes (nan: none)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*found[0], RESULT])
    for cells, reward in zip(_cells(found), rewards, strict=True):
        writer.writerow([*cells, f"{reward:.6g}"])
    return text.getvalue()


def read_table(path: Path) -> list[Member]:
    """The settings in a CSV file with a heading, without their results."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            heading, *rows = [row for row in csv.reader(file) if row] or [[]]
    except (OSError, ValueError, csv.Error) as error:
        raise ConfigError(f"sweep: cannot read {path}: {reason(error)}") from error
    names = [name.strip() for name in heading]
    if not rows or len(set(names)) < len(names) or set(names) <= {RESULT}:
        raise ConfigError(
            f"sweep: {path} needs a line of different names, and one line per setting"
        )
    found = []
    for number, row in enumerate(rows, 2):
        try:
            cells = dict(zip(names, row, strict=True))
            cells.pop(RESULT, None)
            found.append({name: _number(name, cell) for name, cell in cells.items()})
        except ValueError as error:
            raise ConfigError(
                f"sweep: row {number} of {path} is not one number for each of {', '.join(names)}"
            ) from error
    return found


def _number(name: str, cell: str) -> float:
    return int(cell) if name == "seed" else float(cell)


def _whole(number: float) -> float:
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _cells(found: Sequence[Member]) -> list[list[str]]:
    """The cells of each member; a number on the device has no more than nine digits."""
    return [[str(v) if n == "seed" else f"{v:.9g}" for n, v in m.items()] for m in found]
