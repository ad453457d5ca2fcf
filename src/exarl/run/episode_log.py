"""Keeping the episodes of an evaluation as a dataset."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from exarl.acting.evaluation import Move, Played
from exarl.data import Dataset, RecordedEpisode, write
from exarl.data.dataset import check_new
from exarl.data.episodes import Tree
from exarl.envs.base import Space
from exarl.envs.joint import joint_of
from exarl.envs.layout import Flattened
from exarl.envs.space_json import space_to_json
from exarl.errors import ConfigError
from exarl.records.directory import expand
from exarl.run.evaluation import Contestant, Spectator
from exarl.run.stage import Stage
from exarl.types import Arrays


class EpisodeLog:
    """The episodes that a policy plays, as the environment saw them. ConfigError where ``path`` cannot
    be written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = expand(path)
        check_new(self.path)
        self._moves: list[Move] = []
        self._episodes: list[RecordedEpisode] = []
        self._form: tuple[Space, Space] | None = None
        self._env = ""

    def watching(
        self,
        show: Callable[[Contestant, int, Played], None],
        film: Callable[[Any], None] | None,
    ) -> Spectator:
        """Who watches the evaluation: this log, and those who only look."""

        def ended(contestant: Contestant, number: int, played: Played) -> None:
            self._env = contestant.env
            if self._moves:
                self._episodes.append(episode_of(self._moves))
            self._moves = []
            show(contestant, number, played)

        return Spectator(ended, film, self._start, self._moves_on)

    def _start(self, stage: Stage) -> None:
        if joint_of(stage.env) is not None or not stage.alone:
            raise ConfigError("--record needs one process and an environment of one agent")
        self._form = stage.spaces[0]

    def _moves_on(self, move: Move) -> None:
        self._moves.append(move)

    def write(self) -> Dataset:
        """Write the episodes to ``path``; what was written."""
        assert self._form is not None
        seen, acted = self._form
        own = self._episodes
        dataset = Dataset(
            self.path,
            "evaluation",
            tuple(episode.steps for episode in own),
            lambda number: own[number],
            _form(seen),
            _form(acted),
            self._env,
        )
        write(self.path, dataset)
        return dataset


def episode_of(moves: list[Move]) -> RecordedEpisode:
    """The steps of an episode as arrays; one that a failure ended is truncated."""
    terminated = np.array([move.terminated for move in moves])
    truncated = np.array([move.truncated for move in moves])
    truncated[-1] |= not terminated[-1]
    return RecordedEpisode(
        stacked([moves[0].before, *(move.after for move in moves)]),
        stacked([move.action for move in moves]),
        np.array([move.reward for move in moves], np.float64),
        terminated,
        truncated,
    )


def stacked(values: list[Any]) -> Tree:
    """Values of a space as arrays with one axis more, by part."""
    if isinstance(values[0], dict):
        return {str(key): stacked([value[key] for value in values]) for key in values[0]}
    if isinstance(values[0], tuple):
        return tuple(stacked(list(part)) for part in zip(*values, strict=True))
    return np.stack([np.asarray(value) for value in values])


def _form(space: Space) -> dict[str, Any]:
    """A space as plain data; values that travel as a vector are stored as one."""
    if isinstance(space, Flattened):
        ends: Arrays = {"low": space.low, "high": space.high}
        return {
            "type": "Box",
            "dtype": str(space.dtype),
            "shape": list(space.shape),
            **{name: bound.tolist() for name, bound in ends.items()},
        }
    return space_to_json(space)
