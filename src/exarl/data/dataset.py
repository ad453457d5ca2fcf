"""Opening a dataset of any kind, and whether it fits an environment."""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path

import numpy as np

from exarl.data.episodes import Dataset, Tree
from exarl.data.minari import hdf5, is_dataset, read_minari, write_minari
from exarl.data.tables import read_csv, read_npz, write_csv, write_npz
from exarl.errors import ConfigError
from exarl.records.directory import RunDirectory, expand, reason
from exarl.types import EnvSpec

_FILES = {".npz": read_npz, ".csv": read_csv}
_WRITERS = {".npz": write_npz, ".csv": write_csv}
_CHUNK = 1 << 20


def read(path: str | os.PathLike[str]) -> Dataset:
    """The dataset at ``path``: a run that was recorded, a folder of Minari's, an .npz or a .csv file.

    Episodes are read when they are asked for. ConfigError, in one line, where there is none.
    """
    place = expand(path)
    if (found := _FILES.get(place.suffix.lower())) is not None and place.is_file():
        return found(place)
    for folder in (place, place / "data"):  # Minari keeps its own datasets in a folder "data", too
        if is_dataset(folder):
            return read_minari(folder)
    if RunDirectory(place).exists():
        raise ConfigError(f"{place} has no recorded episodes: it was trained without --record")
    if not place.exists():
        raise ConfigError(f"no dataset at {path}")
    raise ConfigError(
        f"{path} is no dataset: neither a recorded run, nor a Minari dataset, nor .npz or .csv"
    )


def write(path: str | os.PathLike[str], dataset: Dataset) -> None:
    """Write a dataset as .npz or .csv, or as a new folder in Minari's layout; what is there of that
    name is replaced if it is a file. ConfigError or StorageError where that cannot be."""
    place = expand(path)
    check_new(place)
    _WRITERS.get(place.suffix.lower(), write_minari)(place, dataset)


def check_new(place: Path) -> None:
    """ConfigError where ``write`` could not write: a folder that exists, or below none."""
    if place.suffix.lower() not in _WRITERS:
        hdf5()
    if place.exists() and (place.is_dir() or place.suffix.lower() not in _WRITERS):
        raise ConfigError(f"cannot write {place}: it exists already")
    if not place.parent.is_dir() or not os.access(place.parent, os.W_OK):
        raise ConfigError(
            f"cannot write {place}: {place.parent} is no folder that can be written to"
        )


def checksum(dataset: Dataset) -> str:
    """The SHA-256 of all files of a dataset; ConfigError where one cannot be read."""
    digest = hashlib.sha256()
    try:
        for path in dataset.files:
            digest.update(path.name.encode())
            with open(path, "rb") as file:
                while piece := file.read(_CHUNK):
                    digest.update(piece)
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename}: {reason(error)}") from error
    return digest.hexdigest()


def check(dataset: Dataset, spec: EnvSpec) -> None:
    """ConfigError, in one line, where the episodes are not of an environment like ``spec``: another
    shape, or numbers beyond the bounds of its actions. Reads all episodes."""
    if not len(dataset):
        raise ConfigError(f"{dataset.path} has no episodes")
    own = spec.spaces.get("action", {})
    for number, episode in enumerate(dataset):
        where = f"{dataset.path}, episode {number}:"
        seen = _size(episode.observations)
        expected = math.prod(spec.observation.shape)
        if isinstance(episode.observations, np.ndarray) and seen != expected:
            shape = list(spec.observation.shape)
            raise ConfigError(
                f"{where} an observation has {seen} numbers, those of {spec.env_id} have {expected}"
                f" {shape}"
            )
        if (size := _actions(own)) is not None and _size(episode.actions) != size:
            raise ConfigError(
                f"{where} an action has {_size(episode.actions)} numbers, those of {spec.env_id} have"
                f" {size}"
            )
        if isinstance(episode.actions, np.ndarray) and (wrong := beyond(own, episode.actions)):
            raise ConfigError(f"{where} an action of {wrong} of {spec.env_id}")


def beyond(space: object, values: np.ndarray) -> str | None:
    """A value outside of a space with bounds and the bounds, in words; None if there is none."""
    if not isinstance(space, dict) or space.get("type") not in ("Box", "Discrete"):
        return None
    whole = space["type"] == "Discrete"
    start = space.get("start", 0)
    ends = (start, start + space["n"] - 1) if whole else (space["low"], space["high"])
    rows = values.reshape(len(values), -1).astype(np.float64)
    low, high = (
        np.broadcast_to(np.asarray(end, np.float64).reshape(-1), rows.shape[1:]) for end in ends
    )
    with np.errstate(invalid="ignore"):
        slack = 1e-5 * np.where(np.isfinite(high - low), np.abs(high) + np.abs(low), 0)
    wrong = (rows < low - slack) | (rows > high + slack)
    if whole:
        wrong |= rows != np.rint(rows)
    if not wrong.any():
        return None
    row, column = np.argwhere(wrong)[0]
    return f"{rows[row, column]:.6g}, outside of [{low[column]:.6g}, {high[column]:.6g}]"


def _size(tree: Tree) -> int:
    """How many numbers a row has."""
    if isinstance(tree, np.ndarray):
        return math.prod(tree.shape[1:])
    return sum(map(_size, tree.values() if isinstance(tree, dict) else tree))


def _actions(space: object) -> int | None:
    """How many numbers an action of a space has; None where it is not known."""
    if not isinstance(space, dict):
        return None
    kind = space.get("type")
    if kind == "Discrete":
        return 1
    if kind == "Box":
        return math.prod(space["shape"])
    if kind == "MultiDiscrete":
        return int(np.size(space["nvec"]))
    if kind == "MultiBinary":
        return int(np.prod(space["n"]))
    if kind in ("Dict", "Tuple"):
        inner = space["subspaces"]
        sizes = [_actions(part) for part in (inner.values() if kind == "Dict" else inner)]
        return None if None in sizes else sum(size or 0 for size in sizes)
    return None
