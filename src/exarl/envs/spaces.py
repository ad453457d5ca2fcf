"""From any Gymnasium space to the arrays that agents and blocks are made of, and back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from exarl.envs.base import Space
from exarl.errors import ConfigError
from exarl.types import ArraySpec, EnvSpec

MAX_COMBINATIONS = 10_000
DISCRETE = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


@dataclass(frozen=True)
class SpaceAdapter:
    """An environment's spaces as arrays: ``encode`` observations, ``decode`` actions."""

    spec: EnvSpec
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    frames: int = 1  # of the last steps, stacked in the observations of ``spec``


def decoder(adapter: SpaceAdapter, space: Space, xp: Any) -> Callable[[Any], Any]:
    """``adapter.decode`` over ``xp``, for use within a compiled program."""
    count = adapter.spec.n_actions
    if count is None:
        assert isinstance(space, spaces.Box)
        return _to_box(space, xp)
    table = np.array([adapter.decode(index) for index in range(count)])
    if np.array_equal(table, np.arange(count)):
        return lambda index: index
    placed = xp.asarray(table)
    return lambda index: placed[index]


def action_values(adapter: SpaceAdapter, space: Space) -> np.ndarray | None:
    """What the environment takes for each index [actions, size], such as the values of a Box's bins.

    None where actions are continuous, or the indices of a Discrete space."""
    count = adapter.spec.n_actions
    if count is None or isinstance(space, spaces.Discrete):
        return None
    return np.array([np.ravel(adapter.decode(index)) for index in range(count)], np.float32)


def adapt(
    env_id: str,
    observation_space: Space,
    action_space: Space,
    *,
    action_kind: str,
    nactions: int,
    max_episode_steps: int | None,
    frames: int = 1,
) -> SpaceAdapter:
    """The adapter of one environment for an agent that needs ``action_kind`` actions.

    Box observations keep their shape (uint8 stays uint8, the rest becomes float32); every other
    space is flattened as Gymnasium does it, discrete parts as one-hot vectors.
    """
    observation, encode = _observations(env_id, observation_space)
    if frames > 1:
        observation = ArraySpec((frames, *observation.shape), observation.dtype)
    if action_kind == "any":
        action_kind = "continuous" if isinstance(action_space, spaces.Box) else "discrete"
    if action_kind == "discrete":
        count, decode = _discrete_actions(env_id, action_space, nactions)
        spec = EnvSpec(
            env_id, observation, ArraySpec((), "int64"), count, max_episode_steps=max_episode_steps
        )
        return SpaceAdapter(spec, encode, decode, frames)
    if not isinstance(action_space, spaces.Box):
        if not isinstance(action_space, DISCRETE):
            raise ConfigError(_unsupported(env_id, action_space))
        raise ConfigError(f"the agent needs continuous actions; {env_id} has {action_space}")
    spec = EnvSpec(
        env_id,
        observation,
        ArraySpec(action_space.shape, "float32"),
        None,
        tuple(np.ravel(action_space.low).tolist()),
        tuple(np.ravel(action_space.high).tolist()),
        max_episode_steps,
        whole_actions=_is_whole(action_space),
    )
    return SpaceAdapter(spec, encode, _to_box(action_space), frames)


def as_given(env_id: str, observation_space: Space) -> SpaceAdapter:
    """The adapter for a policy that takes observations and gives actions as the environment has them.

    Its spec is only good for checking observations; those that are not numbers are not checked.
    """
    try:
        observation, encode = _observations(env_id, observation_space)
    except ConfigError:
        observation, encode = ArraySpec((), "float32"), lambda observation: np.float32(0)
    action = ArraySpec((), "float32")
    return SpaceAdapter(EnvSpec(env_id, observation, action, None), encode, lambda action: action)


def _unsupported(env_id: str, space: Space) -> str:
    return (
        f"actions of {env_id} are a {type(space).__name__}; supported are Discrete, MultiDiscrete,"
        " MultiBinary and Box: put a wrapper around it that makes one of these out of its parts"
    )


def _to_box(space: spaces.Box, xp: Any = np) -> Callable[[Any], Any]:
    """An agent's action as the environment takes it: [-1, 1] stretched to each bounded dimension,
    whatever is beyond cut off; unbounded dimensions as they are. Of a Box of integers the nearest."""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    bounded, whole = np.isfinite(low) & np.isfinite(high), _is_whole(space)
    with np.errstate(invalid="ignore"):
        middle = np.where(bounded, (low + high) / 2, 0)
        half = np.where(bounded, (high - low) / 2, 1)

    def decode(action: Any) -> Any:
        stretched = xp.minimum(xp.maximum(middle + half * action, low), high)
        # A cast alone would cut off the fraction, and the highest value would hardly ever be taken.
        return (xp.rint(stretched) if whole else stretched).astype(space.dtype)

    return decode


def _is_whole(space: spaces.Box) -> bool:
    return np.issubdtype(space.dtype, np.integer)


def _observations(env_id: str, space: Space) -> tuple[ArraySpec, Callable[[Any], Any]]:
    if isinstance(space, spaces.Box):
        dtype = "uint8" if space.dtype == np.uint8 else "float32"
        return ArraySpec(space.shape, dtype), lambda observation: observation
    if not space.is_np_flattenable:
        raise ConfigError(f"observations of {env_id} cannot be flattened: {space}")
    size = spaces.flatdim(space)

    def encode(observation: Any) -> np.ndarray:
        return np.asarray(spaces.flatten(space, observation), np.float32)

    return ArraySpec((size,), "float32"), encode


def _discrete_actions(env_id: str, space: Space, nactions: int) -> tuple[int, Callable[[Any], Any]]:
    """How many actions there are, and what the environment calls the i-th."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return int(space.n), (lambda index: int(index) + start) if start else int
    if isinstance(space, spaces.MultiDiscrete):
        lows, counts = np.ravel(space.start), np.ravel(space.nvec)
        axes = [low + np.arange(count) for low, count in zip(lows, counts, strict=True)]
    elif isinstance(space, spaces.MultiBinary):
        axes = [np.arange(2)] * int(np.prod(space.shape))
    elif isinstance(space, spaces.Box):
        if not space.is_bounded():
            raise ConfigError(f"actions of {env_id} are unbounded and cannot be discretised")
        lows, highs = np.ravel(space.low), np.ravel(space.high)
        axes = [np.linspace(low, high, nactions) for low, high in zip(lows, highs, strict=True)]
        if _is_whole(space):
            axes = [np.rint(axis) for axis in axes]
    else:
        raise ConfigError(_unsupported(env_id, space))
    count = math.prod(len(axis) for axis in axes)
    if count > MAX_COMBINATIONS:
        raise ConfigError(
            f"{env_id} would have more than {MAX_COMBINATIONS} discrete actions;"
            " lower nactions or use an agent for continuous actions"
        )
    table = np.array(list(itertools.product(*axes)), space.dtype).reshape(count, *space.shape)
    return count, lambda index: table[index].copy()  # environments may scale it in place
