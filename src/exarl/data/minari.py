"""The layout of Minari's datasets (https://minari.farama.org) in HDF5: reading and writing.

A dataset is a folder with ``metadata.json`` and ``main_data.hdf5``, which has a group ``episode_N`` for
each episode. A group may stand in another file, to which ``main_data.hdf5`` then has a link.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from exarl.data.episodes import Dataset, RecordedEpisode, SpaceForm, Tree
from exarl.errors import ConfigError, StorageError, install
from exarl.records.directory import in_a_path, read_json, reason
from exarl.records.replacing import replacing

METADATA, MAIN = "metadata.json", "main_data.hdf5"
VERSION = "0.5.4"
"""The version of Minari whose layout is written."""
_TUPLE = "_index_"
_SIDE = 32
"""The least height and width of what Minari stores as a compressed image."""


def is_dataset(folder: Path) -> bool:
    """Whether a folder looks like a dataset in this layout."""
    return (folder / METADATA).is_file()


def hdf5() -> ModuleType:
    """The package h5py; ConfigError where it is not installed."""
    try:
        import h5py
    except ImportError as error:
        raise ConfigError(f"a Minari dataset needs the package h5py: {install('data')}") from error
    module: ModuleType = h5py
    return module


# -- reading ----------------------------------------------------------------------------------------


def read_minari(folder: Path) -> Dataset:
    """The dataset in a folder; ConfigError, in one line, where it cannot be read."""
    h5py, about, main = hdf5(), read_json(folder / METADATA), folder / MAIN
    if not isinstance(about, dict):
        raise ConfigError(f"{folder / METADATA} is damaged: it is no object")
    if (kind := about.get("data_format", "hdf5")) != "hdf5":
        raise ConfigError(f"{folder} is in the data format '{kind}', of which only hdf5 is read")
    observation, action = (_space(folder, about, f"{n}_space") for n in ("observation", "action"))
    if about.get("jpeg_encoding", True) and any(map(is_image, (observation, action))):
        raise ConfigError(
            f"{folder} holds compressed images; write it with jpeg_encoding=False in Minari"
        )
    try:
        with h5py.File(main, "r") as file:
            count = len(file)
            lengths = [int(file[f"episode_{i}"].attrs["total_steps"]) for i in range(count)]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{main} is damaged: {reason(error)}") from error

    def load(number: int) -> RecordedEpisode:
        try:
            with h5py.File(main, "r") as file:
                return stored_episode(file[f"episode_{number}"])
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{main}: episode {number}: {reason(error)}") from error

    env = about.get("exarl_env") or _env_of(about)
    parts = sorted(path for path in folder.iterdir() if path.suffix == ".hdf5")
    return Dataset(
        folder,
        "minari",
        tuple(lengths),
        load,
        observation,
        action,
        env,
        (folder / METADATA, *parts),
    )


def stored_episode(group: Any) -> RecordedEpisode:
    """The episode in a group of a file."""
    infos = _tree(group["infos"]) if "infos" in group else {}
    rewards, terminations, truncations = (
        np.asarray(group[name][()]) for name in ("rewards", "terminations", "truncations")
    )
    return RecordedEpisode(
        _tree(group["observations"]),
        _tree(group["actions"]),
        rewards.astype(np.float64),
        terminations.astype(bool),
        truncations.astype(bool),
        {name: array for name, array in infos.items() if isinstance(array, np.ndarray)}
        if isinstance(infos, dict)
        else {},
    )


def _tree(node: Any) -> Tree:
    if not hasattr(node, "keys"):
        return np.asarray(node[()])
    names = list(node.keys())
    if names and all(name.startswith(_TUPLE) for name in names):
        return tuple(_tree(node[f"{_TUPLE}{i}"]) for i in range(len(names)))
    return {name: _tree(node[name]) for name in names}


def _space(folder: Path, about: Mapping[str, Any], name: str) -> SpaceForm | None:
    """A space as plain data, which stands in the metadata as a text."""
    try:
        stored = json.loads(about[name]) if name in about else None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{folder / METADATA} is damaged: {name}: {error}") from error
    return stored if isinstance(stored, dict) else None


def _env_of(about: Mapping[str, Any]) -> str | None:
    """The id of the environment that Gymnasium would make."""
    try:
        return str(json.loads(about["env_spec"])["id"])
    except (KeyError, TypeError, ValueError):
        return None


def is_image(space: SpaceForm | None) -> bool:
    """Whether Minari stores values of a space as compressed images, unless it is told not to."""
    if space is None or space.get("type") != "Box" or space.get("dtype") != "uint8":
        return False
    shape = space.get("shape", ())
    return len(shape) in (2, 3) and min(shape[:2]) >= _SIDE


# -- writing ----------------------------------------------------------------------------------------


def write_minari(folder: Path, dataset: Dataset) -> None:
    """Write a dataset as a new folder. StorageError where that fails."""
    h5py = hdf5()
    try:
        with replacing(folder) as aside:
            aside.mkdir()
            with h5py.File(aside / MAIN, "w", libver="latest") as file:
                for number, episode in enumerate(dataset):
                    store_episode(file, number, episode)
            first = dataset[0]
            seen = dataset.observation or like(first.observations)
            acted = dataset.action or like(first.actions)
            write_metadata(aside, seen, acted, dataset.lengths, dataset.env_id)
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {reason(error)}") from error


def like(tree: Tree) -> SpaceForm:
    """A space without bounds of values like these."""
    if isinstance(tree, np.ndarray):
        low, high = ("-inf", "inf") if tree.dtype.kind == "f" else _whole_range(tree.dtype)
        shape = list(tree.shape[1:])
        return {"type": "Box", "dtype": str(tree.dtype), "shape": shape, "low": low, "high": high}
    if isinstance(tree, dict):
        return {"type": "Dict", "subspaces": {name: like(part) for name, part in tree.items()}}
    return {"type": "Tuple", "subspaces": [like(part) for part in tree]}


def _whole_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    if dtype == np.bool_:
        return 0, 1
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def store_episode(file: Any, number: int, episode: RecordedEpisode) -> None:
    """Write an episode as a group of an open file."""
    group = file.create_group(f"episode_{number}")
    group.attrs["id"] = number
    group.attrs["total_steps"] = episode.steps
    _store(group, "observations", episode.observations)
    _store(group, "actions", episode.actions)
    for name in ("rewards", "terminations", "truncations"):
        group.create_dataset(name, data=getattr(episode, name))
    _store(group, "infos", dict(episode.infos))


def _store(group: Any, name: str, tree: Tree) -> None:
    if isinstance(tree, np.ndarray):
        group.create_dataset(name, data=tree)
        return
    parts: Iterable[tuple[str, Tree]]
    if isinstance(tree, dict):
        parts = tree.items()
    else:
        parts = ((f"{_TUPLE}{i}", part) for i, part in enumerate(tree))
    inner = group.create_group(name)
    for key, part in parts:
        _store(inner, key, part)


def write_metadata(
    folder: Path,
    observation: SpaceForm | None,
    action: SpaceForm | None,
    lengths: tuple[int, ...],
    env_id: str | None,
    **more: object,
) -> None:
    """Write ``metadata.json``, whole or not at all."""
    size = sum(path.stat().st_size for path in folder.iterdir() if path.suffix == ".hdf5")
    about: dict[str, object] = {
        "total_episodes": len(lengths),
        "total_steps": sum(lengths),
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "dataset_id": f"exarl/{in_a_path(env_id or 'dataset').removesuffix('.')}",
        "minari_version": VERSION,
        "dataset_size": round(size / 1e6, 1),
        **more,
    }
    for name, space in (("observation_space", observation), ("action_space", action)):
        if space is not None:
            about[name] = json.dumps(_expanded(space))
    if env_id is not None:
        about["exarl_env"] = env_id
    with replacing(folder / METADATA, sync=True) as aside:
        aside.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _expanded(space: SpaceForm) -> dict[str, Any]:
    """A space as Minari reads it: each number of a Box has its own bounds."""
    form, parts = dict(space), space.get("subspaces")
    if isinstance(parts, Mapping):
        form["subspaces"] = {name: _expanded(part) for name, part in parts.items()}
    elif parts is not None:
        form["subspaces"] = [_expanded(part) for part in parts]
    if space.get("type") == "Discrete":
        form["dtype"] = "int64"
    if space.get("type") == "Box":
        for end in ("low", "high"):
            number: type = int if np.dtype(space["dtype"]).kind in "iub" else float
            bound = np.vectorize(number, otypes=[object])(np.array(space[end], object))
            form[end] = np.broadcast_to(bound, tuple(space["shape"])).tolist()
    return form
