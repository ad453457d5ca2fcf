"""Datasets in one file: .npz, arrays of all episodes end to end; .csv, a line for each observation."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exarl.data.episodes import Dataset, RecordedEpisode, Tree, leaves
from exarl.errors import ConfigError, StorageError
from exarl.records.directory import reason
from exarl.records.replacing import replacing

FLAGS = ("terminated", "truncated")
_BY_STEP = ("rewards", "terminations", "truncations")


# -- .npz -------------------------------------------------------------------------------------------


def write_npz(path: Path, dataset: Dataset) -> None:
    """Write a dataset as arrays: ``observations`` (or ``observations/PART``) has one row more for each
    episode than ``actions``, ``rewards`` ..., and ``lengths`` are the episodes' steps."""
    episodes = list(dataset)
    columns: dict[str, list[np.ndarray]] = {}
    for episode in episodes:
        named = {"observations": episode.observations, "actions": episode.actions}
        for what, tree in named.items():
            for name, array in leaves(tree):
                columns.setdefault(f"{what}/{name}" if name else what, []).append(array)
        for name in _BY_STEP:
            columns.setdefault(name, []).append(getattr(episode, name))
    arrays = {name: np.concatenate(parts) for name, parts in columns.items()}
    about = {"observation": dataset.observation, "action": dataset.action, "env": dataset.env_id}
    try:
        with replacing(path) as aside, open(aside, "wb") as file:
            arrays |= {"lengths": np.array(dataset.lengths), "about": np.array(json.dumps(about))}
            np.savez_compressed(file, allow_pickle=False, **arrays)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {reason(error)}") from error


def read_npz(path: Path) -> Dataset:
    """The dataset in an .npz file; ConfigError, in one line, where it cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: dict[str, np.ndarray] = {name: file[name] for name in file.files}
        about = json.loads(str(arrays.pop("about", "{}")))
        lengths = np.asarray(arrays["lengths"], np.int64)
        rewards = arrays["rewards"]
        observations, actions = (_joined(arrays, what) for what in ("observations", "actions"))
    except (OSError, ValueError, EOFError, KeyError) as error:
        missing = f"it has no array {error}" if isinstance(error, KeyError) else reason(error)
        raise ConfigError(f"cannot read {path}: {missing}") from error
    if lengths.ndim != 1 or lengths.min(initial=1) < 1 or lengths.sum() != len(rewards):
        raise ConfigError(f"{path}: lengths does not add up to its {len(rewards)} rewards")
    ends = np.cumsum(lengths)
    whole = np.zeros(len(rewards), bool)
    terminations, truncations = (arrays.get(name, whole).astype(bool) for name in _BY_STEP[1:])

    def load(number: int) -> RecordedEpisode:
        end, steps = int(ends[number]), int(lengths[number])
        own = slice(end - steps, end)
        seen = slice(end - steps + number, end + number + 1)
        return RecordedEpisode(
            _rows(observations, seen),
            _rows(actions, own),
            rewards[own],
            terminations[own],
            truncations[own],
        )

    return Dataset(
        path,
        "npz",
        tuple(lengths.tolist()),
        load,
        about.get("observation"),
        about.get("action"),
        about.get("env"),
        (path,),
    )


def _joined(arrays: Mapping[str, np.ndarray], what: str) -> Tree:
    """The array of this name, or those of its parts."""
    if what in arrays:
        return arrays[what]
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        if name.startswith(f"{what}/"):
            *path, last = name.split("/")[1:]
            node = tree
            for key in path:
                node = node.setdefault(key, {})
            node[last] = array
    if not tree:
        raise KeyError(what)
    return tree


def _rows(tree: Tree, rows: slice) -> Tree:
    if isinstance(tree, dict):
        return {key: _rows(part, rows) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_rows(part, rows) for part in tree)
    return tree[rows]


# -- .csv -------------------------------------------------------------------------------------------


def write_csv(path: Path, dataset: Dataset) -> None:
    """Write a dataset as a table: ``episode``, ``step``, ``observation...``, ``action...``, ``reward``,
    ``terminated``, ``truncated``. The last line of an episode has its last observation alone."""
    try:
        with replacing(path) as aside, open(aside, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            for number, episode in enumerate(dataset):
                seen, acted = (
                    _table("observation", episode.observations),
                    _table("action", episode.actions),
                )
                if not number:
                    writer.writerow(["episode", "step", *seen, *acted, "reward", *FLAGS])
                blank: list[object] = [""] * (len(acted) + 3)
                for step, row in enumerate(zip(*seen.values(), strict=True)):
                    done = blank
                    if step < episode.steps:
                        ends = episode.terminations[step], episode.truncations[step]
                        chosen = [values[step] for values in acted.values()]
                        done = [*chosen, float(episode.rewards[step]), *map(int, ends)]
                    writer.writerow([number, step, *row, *done])
    except OSError as error:
        raise StorageError(f"cannot write {path}: {reason(error)}") from error


def _table(what: str, tree: Tree) -> dict[str, list[Any]]:
    """The numbers of a tree as columns."""
    columns: dict[str, list[Any]] = {}
    for name, array in leaves(tree):
        flat = array.reshape(len(array), -1)
        where = f"{what}/{name}" if name else what
        for i, column in enumerate(flat.T):
            columns[f"{where}/{i}" if array.ndim > 1 else where] = column.tolist()
    return columns


class CsvTable:
    """The lines of a .csv file by column; ConfigError in one line for what cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(path, newline="", encoding="utf-8-sig") as file:
                rows = list(csv.reader(file))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise ConfigError(f"cannot read {path}: {reason(error)}") from error
        if not rows or len(set(rows[0])) != len(rows[0]):
            raise ConfigError(f"{path} has no line with a name for each column")
        self.names = [name.strip() for name in rows[0]]
        self.rows = [row for row in rows[1:] if row]
        for line, row in enumerate(self.rows, 2):
            if len(row) != len(self.names):
                raise ConfigError(
                    f"{path}, line {line}: {len(row)} values for {len(self.names)} columns"
                )

    def column(self, name: str) -> list[str]:
        """The texts of a column."""
        if name not in self.names:
            raise ConfigError(f"{self.path} has no column '{name}' ({', '.join(self.names)})")
        place = self.names.index(name)
        return [row[place].strip() for row in self.rows]

    def numbers(self, names: Sequence[str]) -> np.ndarray:
        """These columns as numbers [lines, columns]; NaN where a line has nothing."""
        return np.array([self._numbers(name) for name in names], np.float64).T.reshape(
            len(self.rows), len(names)
        )

    def _numbers(self, name: str) -> list[float]:
        values = []
        for line, text in enumerate(self.column(name), 2):
            try:
                values.append(float(text) if text else np.nan)
            except ValueError:
                raise ConfigError(
                    f"{self.path}, line {line}: '{text[:40]}' in column {name} is no number"
                ) from None
        return values


def read_csv(path: Path) -> Dataset:
    """The dataset in a .csv file with the columns that ``write_csv`` writes. The observations of one
    part and its actions are vectors, or scalars where there is one column without a number."""
    table = CsvTable(path)
    seen = [n for n in table.names if n.split("/")[0] == "observation"]
    acted = [n for n in table.names if n.split("/")[0] == "action"]
    if not seen or not acted or "episode" not in table.names:
        raise ConfigError(
            f"{path} has no columns 'episode', 'observation' and 'action'; for a log of other columns:"
            " exarl data import"
        )
    episodes = table.column("episode")
    starts = [i for i in range(len(episodes)) if i == 0 or episodes[i] != episodes[i - 1]]
    observations, actions = table.numbers(seen), table.numbers(acted)
    rewards = table.numbers(["reward"])[:, 0]
    terminated, truncated = (
        table.numbers([n])[:, 0] > 0 if n in table.names else np.zeros(len(rewards), bool)
        for n in FLAGS
    )
    bounds = list(zip(starts, [*starts[1:], len(episodes)], strict=True))

    def load(number: int) -> RecordedEpisode:
        start, end = bounds[number]
        own = slice(start, end - 1)
        return RecordedEpisode(
            _shaped(seen, observations[start:end]),
            _shaped(acted, actions[own]),
            rewards[own],
            terminated[own],
            truncated[own],
        )

    lengths = tuple(end - start - 1 for start, end in bounds)
    return Dataset(path, "csv", lengths, load, files=(path,))


def _shaped(names: Sequence[str], values: np.ndarray) -> np.ndarray:
    return values[:, 0] if len(names) == 1 and "/" not in names[0] else values
