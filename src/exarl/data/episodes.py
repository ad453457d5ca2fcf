"""Recorded episodes as arrays, in the units of their environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from exarl.errors import ConfigError

Tree: TypeAlias = "np.ndarray | dict[str, Tree] | tuple[Tree, ...]"
"""An array, or those of the parts of a Dict or Tuple space, each with the same first axis."""

SpaceForm: TypeAlias = Mapping[str, Any]
"""A space as plain data, in the form of ``envs.space_json``."""


@dataclass(frozen=True)
class RecordedEpisode:
    """``N`` steps of an environment: ``observations[t]`` led to ``actions[t]``, ``observations[N]`` is
    where it ended. Actions are as the environment takes them."""

    observations: Tree  # [N + 1, ...]
    actions: Tree  # [N, ...]
    rewards: np.ndarray  # [N]
    terminations: np.ndarray  # [N] bool
    truncations: np.ndarray  # [N] bool
    infos: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True)
class Dataset:
    """Episodes in a file or folder; each is read when it is asked for.

    ``observation`` and ``action`` are the spaces of the environment, None where the file does not say.
    """

    path: Path
    kind: str
    lengths: tuple[int, ...]  # of the episodes
    load: Callable[[int], RecordedEpisode]
    observation: SpaceForm | None = None
    action: SpaceForm | None = None
    env_id: str | None = None
    files: tuple[Path, ...] = ()  # what its checksum is taken of

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> RecordedEpisode:
        """An episode. ConfigError, in one line, where its arrays do not fit each other."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        episode = self.load(number)
        if (wrong := unsound(episode)) is not None:
            raise ConfigError(f"{self.path}: episode {number}: {wrong}")
        return episode

    def __iter__(self) -> Iterator[RecordedEpisode]:
        return (self[number] for number in range(len(self)))

    @property
    def steps(self) -> int:
        return sum(self.lengths)


def leaves(tree: Tree, name: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of a tree, each with the names that lead to it."""
    if isinstance(tree, np.ndarray):
        yield name, tree
        return
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, part in parts:
        yield from leaves(part, f"{name}/{key}" if name else str(key))


def mapped(tree: Tree, function: Callable[[np.ndarray], np.ndarray]) -> Tree:
    """The tree with each array changed."""
    if isinstance(tree, dict):
        return {key: mapped(part, function) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(mapped(part, function) for part in tree)
    return function(tree)


def unsound(episode: RecordedEpisode) -> str | None:
    """What is wrong with the arrays of an episode by themselves; None: nothing."""
    steps = episode.steps
    if not steps:
        return "it has no steps"
    expected = [("observations", leaves(episode.observations), steps + 1)]
    expected.append(("actions", leaves(episode.actions), steps))
    for name in ("terminations", "truncations"):
        expected.append((name, iter([("", getattr(episode, name))]), steps))
    for what, arrays, count in expected:
        for name, array in arrays:
            where = f"{what}/{name}" if name else what
            if len(array) != count:
                return f"{where} has {len(array)} rows, not {count} for {steps} steps"
            if array.dtype.kind not in "biuf":
                return f"{where} holds {array.dtype}, not numbers"
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                return f"{where} has a number that is not finite"
    if not np.isfinite(episode.rewards).all():
        return "a reward is not finite"
    if (episode.terminations | episode.truncations)[:-1].any():
        return "it ends before its last step"
    return None
