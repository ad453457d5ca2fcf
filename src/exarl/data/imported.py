"""A log of an instrument as a dataset: which columns are what, and whether their numbers fit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exarl.data.dataset import beyond
from exarl.data.episodes import Dataset, RecordedEpisode, SpaceForm, Tree, leaves, mapped
from exarl.data.tables import FLAGS, CsvTable
from exarl.errors import ConfigError, as_one

_NUMBER = r"[-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?"
_SCALED = re.compile(rf"(.+?)(?:\*({_NUMBER}))?(?:([+-][0-9.].*))?")


@dataclass(frozen=True)
class Column:
    """A column; the environment's numbers are ``factor`` * value + ``offset``."""

    name: str
    factor: float = 1.0
    offset: float = 0.0

    @classmethod
    def read(cls, text: str, known: Sequence[str]) -> Column:
        """That of ``NAME``, ``NAME*FACTOR``, ``NAME+OFFSET`` or both. ConfigError for others."""
        found = _SCALED.fullmatch(text)
        if text in known or found is None:
            return cls(text)
        try:
            return cls(found[1], float(found[2] or 1), float(found[3] or 0))
        except ValueError as error:
            raise ConfigError(f"columns: '{text}' is not NAME, NAME*2.5 or NAME-273.15") from error


def read_columns(text: str, known: Sequence[str]) -> dict[str, list[Column]]:
    """What ``"observation=a,b action=u reward=r"`` says."""
    said: dict[str, list[Column]] = {}
    for word in text.split():
        role, equals, names = word.partition("=")
        if not equals or not names or role in said:
            raise ConfigError(f"columns: '{word}' is not ROLE=NAME,NAME with a role of its own")
        said[role] = [Column.read(name, known) for name in names.split(",")]
    for role in said:
        if role.split("/")[0] not in ("observation", "action", "reward", "episode", *FLAGS):
            raise ConfigError(
                f"columns: '{role}' is none of observation, action, reward, episode, terminated,"
                " truncated"
            )
    for role in ("observation", "action", "reward"):
        if not any(each.split("/")[0] == role for each in said):
            raise ConfigError(f"columns: {role}=... is missing")
    return said


def import_csv(
    path: Path, columns: str, observation: SpaceForm, action: SpaceForm, env_id: str
) -> Dataset:
    """The episodes of a log with a line for each observation: the action that was then given, and the
    reward that followed. The last line of an episode has its last observation alone, and says how it
    ended. ConfigError, with all that is wrong, where the numbers are not of these spaces."""
    table = CsvTable(path)
    said = read_columns(columns, table.names)
    values = {
        role: np.stack([_numbers(table, c) for c in cs], 1)
        for role, cs in said.items()
        if role != "episode"
    }
    seen = _tree("observation", observation, values)
    acted = _tree("action", action, values)
    ended = {flag: _flag(values, flag, len(table.rows)) for flag in FLAGS}
    bounds = _bounds(table, said, ended["terminated"] | ended["truncated"])
    episodes = [_episode(a, b, seen, acted, values["reward"][:, 0], ended) for a, b in bounds]
    wrong = [*_gaps(path, episodes, bounds)]
    for what, form, trees in (
        ("observation", observation, [e.observations for e in episodes]),
        ("action", action, [e.actions for e in episodes]),
    ):
        wrong += _outside(path, what, form, trees, bounds)
    if wrong:
        raise as_one([ConfigError(text) for text in wrong])
    lengths = tuple(episode.steps for episode in episodes)
    return Dataset(
        path, "log", lengths, lambda n: episodes[n], observation, action, env_id, (path,)
    )


def _numbers(table: CsvTable, column: Column) -> np.ndarray:
    return column.factor * table.numbers([column.name])[:, 0] + column.offset


def _flag(values: Mapping[str, np.ndarray], name: str, lines: int) -> np.ndarray:
    found: np.ndarray = values[name][:, 0] > 0 if name in values else np.zeros(lines, bool)
    return found


def _tree(what: str, form: SpaceForm, values: Mapping[str, np.ndarray]) -> Tree:
    """The columns in the form of a space; ConfigError where there are too many or too few."""
    inner = form.get("subspaces")
    if isinstance(inner, Mapping):
        return {name: _tree(f"{what}/{name}", part, values) for name, part in inner.items()}
    if inner is not None:
        return tuple(_tree(f"{what}/{i}", part, values) for i, part in enumerate(inner))
    if what not in values:
        raise ConfigError(f"columns: {what}=... is missing")
    shape = tuple(form.get("shape", np.shape(form.get("nvec", 0)) or _binary(form)))
    size, found = math.prod(shape), values[what].shape[1]
    if size != found:
        raise ConfigError(
            f"columns: {what} has {found} columns, the environment has {size} numbers"
        )
    return values[what].reshape(-1, *shape)


def _binary(form: SpaceForm) -> tuple[int, ...]:
    count = form.get("n", 0) if form.get("type") == "MultiBinary" else None
    return () if count is None else tuple(np.atleast_1d(count).tolist())


def _bounds(
    table: CsvTable, said: Mapping[str, Sequence[Column]], ended: np.ndarray
) -> list[tuple[int, int]]:
    """The first line of each episode, and the line after its last. Without a column that counts them,
    an episode ends with the line that says so."""
    lines = len(table.rows)
    if "episode" in said:
        names = table.column(said["episode"][0].name)
        starts = [i for i in range(lines) if i == 0 or names[i] != names[i - 1]]
    else:
        starts = [0, *(int(i) + 1 for i in np.flatnonzero(ended) if i + 1 < lines)]
    bounds = list(zip(starts, [*starts[1:], lines], strict=True))
    for start, end in bounds:
        if end - start < 2:
            raise ConfigError(
                f"{table.path}, line {start + 2}: an episode of one line has no step: it needs the"
                " observation before and the one after"
            )
    return bounds


def _episode(
    start: int,
    end: int,
    seen: Tree,
    acted: Tree,
    rewards: np.ndarray,
    ended: Mapping[str, np.ndarray],
) -> RecordedEpisode:
    flags = {name: np.zeros(end - start - 1, bool) for name in FLAGS}
    for name, array in ended.items():
        flags[name][-1] = array[max(start, end - 2) : end].any()
    flags["truncated"][-1] |= not flags["terminated"][-1]
    return RecordedEpisode(
        mapped(seen, lambda array: array[start:end]),
        mapped(acted, lambda array: array[start : end - 1]),
        rewards[start : end - 1],
        flags["terminated"],
        flags["truncated"],
    )


def _gaps(
    path: Path, episodes: Sequence[RecordedEpisode], bounds: Sequence[tuple[int, int]]
) -> list[str]:
    """Lines in which a number is missing."""
    wrong = []
    for episode, (start, _) in zip(episodes, bounds, strict=True):
        trees: list[tuple[str, Tree]] = [("observation", episode.observations)]
        trees += [("action", episode.actions), ("reward", episode.rewards)]
        for what, tree in trees:
            for name, array in leaves(tree):
                bad = ~np.isfinite(array.reshape(len(array), -1)).all(1)
                if bad.any():
                    where = f"{what}/{name}" if name else what
                    line = start + int(bad.argmax()) + 2
                    wrong.append(f"{path}, line {line}: {where} has no number")
    return wrong


def _outside(
    path: Path,
    what: str,
    form: SpaceForm,
    trees: Sequence[Tree],
    bounds: Sequence[tuple[int, int]],
) -> list[str]:
    """The first number of each part that is outside of its space."""
    inner = form.get("subspaces")
    if inner is not None:
        parts = inner.items() if isinstance(inner, Mapping) else enumerate(inner)
        wrong = []
        for key, part in parts:
            own = [tree[key] for tree in trees]  # type: ignore[index,call-overload]
            wrong += _outside(path, f"{what}/{key}", part, own, bounds)
        return wrong
    for tree, (start, _) in zip(trees, bounds, strict=True):
        assert isinstance(tree, np.ndarray)
        for step, values in enumerate(tree):
            if (found := beyond(form, values[None])) is not None:
                return [f"{path}, line {start + step + 2}: {what} is {found}"]
    return []
