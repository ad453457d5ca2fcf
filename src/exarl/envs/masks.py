"""Environments in which only some actions are allowed now: where they say so, and one form for it.

An ``action_mask`` has one entry for each action, of a MultiDiscrete for each choice of each number one
after the other; those that are not 0 are allowed. Here it becomes a part of the observation, and so
goes wherever observations go: to other processes and ranks, into replays, checkpoints and exports.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl.envs.base import Env, Info, Space
from exarl.envs.guard import FAILING
from exarl.envs.outcome import begin_with_info
from exarl.errors import ConfigError, EnvironmentFailure

KEY, SEEN = "action_mask", "observation"
"""The parts of a masked environment's observation."""

METHOD = "action_masks"
"""The method of an environment that returns its mask, as in sb3-contrib."""


class Masked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose observation is a Dict with an ``action_mask`` of 0 and 1.

    ``mask_of`` finds it in what ``reset`` and ``step`` gave; ``whole`` says that it is in their
    observation. A mask that allows nothing is an EnvironmentFailure, except where the episode is over.
    """

    def __init__(
        self, env: Env, size: int, mask_of: Callable[[Any, Any], Any], whole: bool
    ) -> None:
        super().__init__(env)
        self._size, self._mask_of, self._whole = size, mask_of, whole
        seen = env.observation_space
        masks = spaces.MultiBinary(size)
        if whole:
            assert isinstance(seen, spaces.Dict)
            self.observation_space = spaces.Dict([*(seen.spaces | {KEY: masks}).items()])
        else:
            self.observation_space = spaces.Dict([(SEEN, seen), (KEY, masks)])
        self._name = getattr(env.spec, "id", type(env.unwrapped).__name__)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        observation, info = begin_with_info(self.env, seed)
        return self._with_mask(observation, info, False), info  # type: ignore[return-value]

    def step(self, action: Any) -> Any:
        found: Any = self.env.step(action)
        try:
            observation, reward, terminated, truncated, info = found
        except (TypeError, ValueError):
            return found  # which the caller will explain
        seen = self._with_mask(observation, info, terminated or truncated)
        return seen, reward, terminated, truncated, info

    def _with_mask(self, observation: Any, info: Any, over: bool) -> dict[str, Any]:
        try:
            mask = np.asarray(self._mask_of(observation, info))
        except (KeyError, TypeError) as error:
            raise self._failure(f"gave no {KEY}") from error
        if mask.size != self._size:
            raise self._failure(f"gave an {KEY} of {mask.size} entries, not {self._size}")
        if not mask.tobytes().strip(b"\0"):  # much cheaper than any()
            if not over:
                raise self._failure(f"gave an {KEY} that allows no action")
            mask = np.ones(self._size, bool)
        if mask.ndim != 1:
            mask = mask.ravel()
        return {**observation, KEY: mask} if self._whole else {SEEN: observation, KEY: mask}

    def _failure(self, what: str) -> EnvironmentFailure:
        return EnvironmentFailure(f"environment {self._name} {what}", "shape")


def with_masks(env: Env) -> Env:
    """``env``, as a ``Masked`` if it says which actions are allowed."""
    if (size := mask_size(env.action_space)) is None:
        return env
    seen = env.observation_space
    if isinstance(seen, spaces.Dict) and KEY in seen.spaces:
        found = spaces.flatdim(seen.spaces[KEY])
        if found != size:
            raise ConfigError(f"the {KEY} of the observations has {found} entries, not {size}")
        return Masked(env, size, lambda observation, _: observation[KEY], whole=True)
    if env.has_wrapper_attr(METHOD):
        masks = env.get_wrapper_attr(METHOD)
        return Masked(env, size, lambda *_: masks(), whole=False)
    if _may_tell(env) and _tells(env):
        return Masked(env, size, lambda _, info: info[KEY], whole=False)
    return env


def own_space(space: Space) -> Space:
    """What an environment shows itself, where ``space`` is that of a ``Masked``."""
    if isinstance(space, spaces.Dict) and space.spaces.keys() == {SEEN, KEY}:
        return space.spaces[SEEN]
    return space


def mask_size(space: Space) -> int | None:
    """The entries of a mask of these actions; None where there can be no mask."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, spaces.MultiBinary):
        return 2 * int(np.prod(space.shape))
    if isinstance(space, spaces.Dict | spaces.Tuple):  # of the parts that are chosen
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return sum(mask_size(part) or 0 for part in parts) or None
    return None


def _may_tell(env: Env) -> bool:
    """Whether the code of ``env`` or of a wrapper around it names an ``action_mask``: only then is it
    worth a reset, which may take minutes, to see whether ``info`` has one."""
    layer: Any = env
    modules: set[str] = set()
    while layer is not None:
        modules |= {kind.__module__ for kind in type(layer).__mro__}
        layer = layer.env if isinstance(layer, gymnasium.Wrapper) else None
    modules -= {"builtins", "abc", "typing", "gymnasium.core", __name__}
    return any(_names_masks(module) for module in modules)


def _names_masks(module: str) -> bool:
    try:
        return KEY in inspect.getsource(sys.modules[module])
    except KeyError:
        return False
    except (OSError, TypeError):  # compiled, or typed in
        return True


def _tells(env: Env) -> bool:
    try:
        _, info = begin_with_info(env, 0)
    except FAILING:  # the first episode will say it
        return False
    return isinstance(info, dict) and KEY in info
