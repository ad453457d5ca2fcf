"""From any Gymnasium space to the arrays that agents and blocks are made of, and back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from exarl.envs.base import Space
from exarl.envs.layout import Flattened, VectorLayout
from exarl.envs.masks import mask_size
from exarl.errors import ConfigError
from exarl.types import ArraySpec, EnvSpec, ObservationPart

MAX_COMBINATIONS = 10_000
ONE_CHOICE = 1_000
"""Combinations that an agent which can choose factor by factor still takes as one choice."""
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
    if adapter.spec.choices:
        return _by_factor(space, _axes(space, adapter.spec.choices), xp)
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
    factors: bool = False,
    masks: bool = False,
) -> SpaceAdapter:
    """The adapter of one environment for an agent that needs ``action_kind`` actions.

    Box observations keep their shape (uint8 stays uint8, the rest becomes float32); every other
    space is flattened as Gymnasium does it, discrete parts as one-hot vectors. ``factors`` says that
    the agent can choose each number of an action by itself, ``masks`` that it respects an action mask.
    """
    observation, parts, encode = _observations(env_id, observation_space)
    if frames > 1:
        observation = ArraySpec((frames, *observation.shape), observation.dtype)
    spec = EnvSpec(
        env_id,
        observation,
        ArraySpec((), "int64"),
        None,
        max_episode_steps=max_episode_steps,
        parts=parts,
    )
    if action_kind == "any":
        action_kind = "continuous" if isinstance(action_space, spaces.Box) else "discrete"
    if action_kind == "discrete":
        _check_mask(spec, action_space, masks, factors)
        spec, decode = _discrete(spec, action_space, nactions, factors)
        return SpaceAdapter(spec, encode, decode, frames)
    if not isinstance(action_space, spaces.Box):
        if not isinstance(action_space, DISCRETE):
            raise ConfigError(_unsupported(env_id, action_space))
        raise ConfigError(f"the agent needs continuous actions; {env_id} has {action_space}")
    spec = replace(
        spec,
        action=ArraySpec(action_space.shape, "float32"),
        action_low=tuple(np.ravel(action_space.low).tolist()),
        action_high=tuple(np.ravel(action_space.high).tolist()),
        whole_actions=_is_whole(action_space),
    )
    return SpaceAdapter(spec, encode, _to_box(action_space), frames)


def as_given(env_id: str, observation_space: Space) -> SpaceAdapter:
    """The adapter for a policy that takes observations and gives actions as the environment has them.

    Its spec is only good for checking observations; those that are not numbers are not checked.
    """
    try:
        observation, _, encode = _observations(env_id, observation_space)
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


def _observations(
    env_id: str, space: Space
) -> tuple[ArraySpec, tuple[ObservationPart, ...], Callable[[Any], Any]]:
    """The array of an observation, its parts if they are not all seen alike, and how it is made."""
    if isinstance(space, spaces.Box) and not isinstance(space, Flattened):
        dtype = "uint8" if space.dtype == np.uint8 else "float32"
        return ArraySpec(space.shape, dtype), (), lambda observation: observation
    original = space.original if isinstance(space, Flattened) else space
    try:
        layout = VectorLayout.of(original)
    except ValueError as error:
        raise ConfigError(f"observations of {env_id} cannot be flattened: {error}") from error
    encode = layout.encoder() if original is space else layout.flat_encoder()
    return layout.spec, layout.parts, encode


def _check_mask(spec: EnvSpec, space: Space, masks: bool, factors: bool) -> None:
    """ConfigError where the mask of the actions would not be respected."""
    if (mask := spec.mask) is None:
        return
    drop = "leave the mask out with --drop_observations action_mask"
    if not masks:
        raise ConfigError(
            f"{spec.env_id} says which actions are allowed (action_mask), which the agent does not"
            f" respect: {drop}"
        )
    if not factors and not isinstance(space, spaces.Discrete):
        raise ConfigError(f"the agent respects an action_mask of Discrete actions only: {drop}")
    if (found := math.prod(mask.shape)) != mask_size(space):
        raise ConfigError(
            f"the action_mask of {spec.env_id} has {found} entries, not {mask_size(space)}: {drop}"
        )


def _discrete(
    spec: EnvSpec, space: Space, nactions: int, factors: bool
) -> tuple[EnvSpec, Callable[[Any], Any]]:
    """The spec with its discrete actions, and what the environment calls each."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        decode = (lambda index: int(index) + start) if start else int
        return replace(spec, n_actions=int(space.n)), decode
    choices, axes = _factors(spec.env_id, space, nactions)
    count = math.prod(choices)
    if factors and (count > ONE_CHOICE or spec.mask is not None):
        spec = replace(spec, action=ArraySpec((len(choices),), "int64"), choices=choices)
        return spec, _by_factor(space, axes)
    if count > MAX_COMBINATIONS:
        raise ConfigError(
            f"{spec.env_id} would have more than {MAX_COMBINATIONS} discrete actions;"
            " lower nactions or use an agent for continuous actions"
        )
    table = np.array(list(itertools.product(*axes)), space.dtype).reshape(count, *_shape_of(space))
    # copied, since environments may scale it in place
    return replace(spec, n_actions=count), lambda index: table[index].copy()


def _factors(env_id: str, space: Space, nactions: int) -> tuple[tuple[int, ...], list[np.ndarray]]:
    """How many values each number of an action has; ConfigError where it cannot have few."""
    if isinstance(space, spaces.MultiDiscrete):
        choices = tuple(np.ravel(space.nvec).tolist())
    elif isinstance(space, spaces.MultiBinary):
        choices = (2,) * math.prod(space.shape)
    elif isinstance(space, spaces.Box):
        if not space.is_bounded():
            raise ConfigError(f"actions of {env_id} are unbounded and cannot be discretised")
        choices = (nactions,) * math.prod(space.shape)
    else:
        raise ConfigError(_unsupported(env_id, space))
    return choices, _axes(space, choices)


def _axes(space: Space, choices: tuple[int, ...]) -> list[np.ndarray]:
    """The values of each number of an action."""
    if isinstance(space, spaces.Box):
        ends = zip(np.ravel(space.low), np.ravel(space.high), choices, strict=True)
        axes = [np.linspace(low, high, count) for low, high, count in ends]
        return [np.rint(axis) for axis in axes] if _is_whole(space) else axes
    lows = np.ravel(space.start) if isinstance(space, spaces.MultiDiscrete) else [0] * len(choices)
    return [low + np.arange(count) for low, count in zip(lows, choices, strict=True)]


def _by_factor(space: Space, axes: list[np.ndarray], xp: Any = np) -> Callable[[Any], Any]:
    """The action of an index for each factor."""
    table = np.zeros((len(axes), max(map(len, axes))), space.dtype)
    for row, axis in zip(table, axes, strict=True):
        row[: len(axis)] = axis
    shape, factors, values = _shape_of(space), np.arange(len(axes)), xp.asarray(table)
    return lambda indices: values[factors, indices].reshape(shape)


def _shape_of(space: Space) -> tuple[int, ...]:
    return tuple(space.shape or ())
