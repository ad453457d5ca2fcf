"""From any Gymnasium space to the arrays that agents and blocks are made of, and back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from exarl.envs.base import Space
from exarl.envs.layout import Flattened, VectorLayout
from exarl.envs.masks import mask_size
from exarl.envs.structured import CHOSEN, JoinedActions, dtype_over
from exarl.errors import ConfigError
from exarl.types import ArraySpec, EnvSpec, ObservationPart

MAX_COMBINATIONS = 10_000
ONE_CHOICE = 1_000
"""Combinations that an agent which can choose factor by factor still takes as one choice."""


@dataclass(frozen=True)
class SpaceAdapter:
    """An environment's spaces as arrays: ``encode`` observations, ``decode`` actions."""

    spec: EnvSpec
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    frames: int = 1  # of the last steps, stacked in the observations of ``spec``
    seats: tuple[SpaceAdapter, ...] = ()  # of each agent, where not all share a policy

    def of(self, place: int) -> SpaceAdapter:
        """The adapter of one of the agents."""
        return self.seats[place % len(self.seats)] if self.seats else self


def decoder(adapter: SpaceAdapter, space: Space, xp: Any) -> Callable[[Any], Any]:
    """``adapter.decode`` over ``xp``, for use within a compiled program."""
    spec, joined = adapter.spec, JoinedActions.of(space)
    if joined is None:
        return _decoder(spec, adapter.decode, space, xp)
    apart, inner = joined.apart(xp), joined.plain
    if inner is None:
        decode = _mixed(joined, xp)
    else:
        decode = _decoder(spec, lambda index: joined.together(adapter.decode(index)), inner, xp)
    return lambda action: apart(decode(action))


def _decoder(
    spec: EnvSpec, decode: Callable[[Any], Any], space: Space, xp: Any
) -> Callable[[Any], Any]:
    """``decode`` over ``xp``, of a space without parts."""
    count = spec.n_actions
    if spec.choices:
        return _by_factor(space, axes_of(space, spec.choices), xp)
    if count is None:
        assert isinstance(space, spaces.Box)
        return _to_box(space, xp)
    table = np.array([decode(index) for index in range(count)])
    if np.array_equal(table, np.arange(count)):
        return lambda index: index
    placed = xp.asarray(table)
    return lambda index: placed[index]


def action_values(adapter: SpaceAdapter, space: Space) -> np.ndarray | None:
    """What the environment takes for each index [actions, size], such as the values of a Box's bins.

    None where actions are continuous, or the indices of a Discrete space."""
    count, joined = adapter.spec.n_actions, JoinedActions.of(space)
    if count is None or isinstance(space, spaces.Discrete):
        return None
    flat = np.ravel if joined is None else joined.together
    return np.array([flat(adapter.decode(index)) for index in range(count)], np.float32)


def factor_values(adapter: SpaceAdapter, space: Space) -> np.ndarray | None:
    """What the environment takes for each index of each factor [factors, most]; None where there are
    no factors."""
    if not adapter.spec.choices:
        return None
    joined = JoinedActions.of(space)
    plain = space if joined is None else joined.plain
    return None if plain is None else _table(plain, axes_of(plain, adapter.spec.choices))


def mixed_values(adapter: SpaceAdapter, space: Space) -> tuple[np.ndarray, np.ndarray] | None:
    """Of numbers and choices in one action: which numbers are whole (1, else 0), and the first value of
    each choice; None where an action does not have both."""
    joined = JoinedActions.of(space) if adapter.spec.mixed else None
    if joined is None:
        return None
    numbers, factors = joined.numbers, joined.factors
    assert numbers is not None and factors is not None
    whole = np.zeros(len(numbers.low))
    for part, place in joined.places:
        if isinstance(part, spaces.Box):
            whole[place] = _is_whole(part)
    return whole, factors.start.astype(float)


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
    mixed: bool = False,
) -> SpaceAdapter:
    """The adapter of one environment for an agent that needs ``action_kind`` actions.

    Box observations keep their shape (uint8 stays uint8, the rest becomes float32); every other
    space is flattened as Gymnasium does it, discrete parts as one-hot vectors. ``factors`` says that
    the agent can choose each number of an action by itself, ``masks`` that it respects an action mask,
    ``mixed`` that it can give continuous numbers and chosen ones in one action.
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
    try:
        joined = JoinedActions.of(action_space)
    except ValueError as error:
        raise ConfigError(f"actions of {env_id}: {error}; {_SUPPORTED}") from error
    space = action_space if joined is None else joined.plain
    if space is not None:
        able = _Able(action_kind, nactions, factors, masks)
        spec, decode = _actions(spec, space, able)
    elif mixed:
        assert joined is not None
        spec, decode = _mixed_actions(spec, joined, masks)
    else:
        raise ConfigError(
            f"actions of {env_id} have continuous numbers and choices, which few agents give together,"
            " such as PPO-v0 and A2C-v0"
        )
    if joined is not None:
        plain, apart = decode, joined.apart()
        return SpaceAdapter(spec, encode, lambda action: apart(plain(action)), frames)
    return SpaceAdapter(spec, encode, decode, frames)


class _Able(NamedTuple):
    """What an agent can do, as ``adapt`` is told."""

    action_kind: str
    nactions: int
    factors: bool
    masks: bool


def _actions(spec: EnvSpec, space: Space, able: _Able) -> tuple[EnvSpec, Callable[[Any], Any]]:
    """The spec with actions of a space without parts, and what the environment calls each."""
    kind = able.action_kind
    if kind == "any":
        kind = "continuous" if isinstance(space, spaces.Box) else "discrete"
    if kind == "discrete":
        _check_mask(spec, space, able.masks, able.factors)
        return _discrete(spec, space, able.nactions, able.factors)
    if not isinstance(space, spaces.Box):
        if not isinstance(space, CHOSEN):
            raise ConfigError(_unsupported(spec.env_id, space))
        raise ConfigError(f"the agent needs continuous actions; {spec.env_id} has {space}")
    return _continuous(spec, space), _to_box(space)


def _continuous(spec: EnvSpec, space: spaces.Box) -> EnvSpec:
    return replace(
        spec,
        action=ArraySpec(space.shape, "float32"),
        action_low=tuple(np.ravel(space.low).tolist()),
        action_high=tuple(np.ravel(space.high).tolist()),
        whole_actions=_is_whole(space),
    )


def _mixed_actions(
    spec: EnvSpec, joined: JoinedActions, masks: bool
) -> tuple[EnvSpec, Callable[[Any], Any]]:
    """The spec with continuous numbers and factors in one vector, and the values of each vector."""
    numbers, factors = joined.numbers, joined.factors
    assert numbers is not None and factors is not None
    _check_mask(spec, factors, masks, factors=True)
    choices = tuple(factors.nvec.tolist())
    size = numbers.shape[0] + len(choices)
    spec = replace(
        _continuous(spec, numbers), action=ArraySpec((size,), "float32"), choices=choices
    )
    return spec, _mixed(joined)


def _mixed(joined: JoinedActions, xp: Any = np) -> Callable[[Any], Any]:
    """The values of a vector of continuous numbers in [-1, 1] and of an index for each factor."""
    numbers, factors = joined.numbers, joined.factors
    assert numbers is not None and factors is not None
    count, stretch = numbers.shape[0], _to_box(numbers, xp)
    values = _by_factor(factors, axes_of(factors, tuple(factors.nvec.tolist())), xp)
    return lambda action: xp.concatenate(
        [stretch(action[:count]), values(action[count:].astype(int))]
    )


def as_given(env_id: str, observation_space: Space, action_space: Space) -> SpaceAdapter:
    """The adapter for a policy that takes observations and gives actions as the environment has them.

    Its spec is only good for checking observations; those that are not numbers are not checked.
    """
    travels = JoinedActions.of(action_space) if isinstance(action_space, Flattened) else None
    decode = (lambda action: action) if travels is None else replace(travels, flat=False).together
    try:
        observation, _, encode = _observations(env_id, observation_space)
    except ConfigError:
        observation, encode = ArraySpec((), "float32"), lambda observation: np.float32(0)
    action = ArraySpec((), "float32")
    return SpaceAdapter(EnvSpec(env_id, observation, action, None), encode, decode)


_SUPPORTED = (
    "supported are Discrete, MultiDiscrete, MultiBinary and Box, and a Dict or Tuple of these: put a"
    " wrapper around it that makes one of these out of its parts"
)


def _unsupported(env_id: str, space: Space) -> str:
    return f"actions of {env_id} are a {type(space).__name__}; {_SUPPORTED}"


def _to_box(space: spaces.Box, xp: Any = np) -> Callable[[Any], Any]:
    """An agent's action as the environment takes it: [-1, 1] stretched to each bounded dimension,
    whatever is beyond cut off; unbounded dimensions as they are. Of a Box of integers the nearest."""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    bounded, whole = np.isfinite(low) & np.isfinite(high), _is_whole(space)
    dtype = dtype_over(xp, space.dtype)
    with np.errstate(invalid="ignore"):
        middle = np.where(bounded, (low + high) / 2, 0)
        half = np.where(bounded, (high - low) / 2, 1)

    def decode(action: Any) -> Any:
        stretched = xp.minimum(xp.maximum(middle + half * action, low), high)
        # A cast alone would cut off the fraction, and the highest value would hardly ever be taken.
        return (xp.rint(stretched) if whole else stretched).astype(dtype)

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
    return choices, axes_of(space, choices)


def axes_of(space: Space, choices: tuple[int, ...]) -> list[np.ndarray]:
    """The values of each number of an action."""
    if isinstance(space, spaces.Box):
        ends = zip(np.ravel(space.low), np.ravel(space.high), choices, strict=True)
        axes = [np.linspace(low, high, count) for low, high, count in ends]
        return [np.rint(axis) for axis in axes] if _is_whole(space) else axes
    lows = np.ravel(space.start) if isinstance(space, spaces.MultiDiscrete) else [0] * len(choices)
    return [low + np.arange(count) for low, count in zip(lows, choices, strict=True)]


def _by_factor(space: Space, axes: list[np.ndarray], xp: Any = np) -> Callable[[Any], Any]:
    """The action of an index for each factor."""
    values = xp.asarray(_table(space, axes))
    shape, factors = _shape_of(space), np.arange(len(axes))
    return lambda indices: values[factors, indices].reshape(shape)


def _table(space: Space, axes: list[np.ndarray]) -> np.ndarray:
    """The values of each factor, [factors, most]."""
    table = np.zeros((len(axes), max(map(len, axes))), space.dtype)
    for row, axis in zip(table, axes, strict=True):
        row[: len(axis)] = axis
    return table


def _shape_of(space: Space) -> tuple[int, ...]:
    return tuple(space.shape or ())
