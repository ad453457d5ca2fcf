"""Environments without some parts of their observations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium import spaces

from exarl.envs.base import Env, Space
from exarl.errors import ConfigError


class Dropped(gymnasium.ObservationWrapper[Any, Any, Any]):
    """An environment whose observations lack the parts of these names; ``a/b`` is part b of part a.

    ConfigError when there is no such part.
    """

    def __init__(self, env: Env, names: Sequence[str]) -> None:
        super().__init__(env)
        paths = [tuple(name.split("/")) for name in names]
        self._paths = paths
        self.observation_space: Any = env.observation_space
        for path, name in zip(paths, names, strict=True):
            try:
                self.observation_space = _without(self.observation_space, path)
            except LookupError as error:
                parts = ", ".join(_names(env.observation_space)) or "no parts"
                raise ConfigError(
                    f"drop_observations: no part '{name}' in the observations, which have {parts}"
                ) from error

    def observation(self, observation: Any) -> Any:
        return _kept(self.env.observation_space, observation, self._paths)


def _children(space: Space) -> dict[str, Space]:
    return {name: part for name, (_, part) in _named(space).items()}


def _named(space: Space) -> dict[str, tuple[Any, Space]]:
    """The key and the space of each part, by its name."""
    if isinstance(space, spaces.Dict):
        return {str(key): (key, part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return {str(place): (place, part) for place, part in enumerate(space.spaces)}
    return {}


def _names(space: Space) -> list[str]:
    """The names of all parts that have no parts."""
    names = []
    for name, part in _children(space).items():
        names += [f"{name}/{inner}" for inner in _names(part)] or [name]
    return names


def _without(space: Space, path: tuple[str, ...]) -> Space:
    """The space without the part at ``path``; LookupError where there is none. Parts of a Tuple keep
    their numbers as names."""
    children = _children(space)
    inner = children.pop(path[0])
    if len(path) > 1:
        children = {**_children(space), path[0]: _without(inner, path[1:])}
    return spaces.Dict(list(children.items()))


def _kept(space: Space, value: Any, paths: Sequence[tuple[str, ...]]) -> Any:
    """A value of ``space`` without the parts at these paths."""
    if not paths:
        return value
    gone = {path[0] for path in paths if len(path) == 1}
    return {
        name: _kept(part, value[key], [path[1:] for path in paths if path[0] == name])
        for name, (key, part) in _named(space).items()
        if name not in gone
    }
