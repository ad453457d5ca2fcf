"""The form that observations and actions of several policies have in common in a block."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from exarl.envs.spaces import SpaceAdapter
from exarl.errors import ConfigError
from exarl.types import ArraySpec, EnvSpec, PolicySpec


def together(
    own: Mapping[str, SpaceAdapter], policies: Mapping[str, tuple[int, ...]]
) -> SpaceAdapter:
    """The adapter of a simulation whose agents have these adapters, by policy and by place.

    Where the forms of the policies differ, observations and actions are vectors of the longest, with
    zeros behind the shorter ones. ConfigError where such observations would be stacked.
    """
    first = next(iter(own.values()))
    observation = common([adapter.spec.observation for adapter in own.values()])
    action = common([adapter.spec.action for adapter in own.values()])
    if first.frames > 1 and observation != first.spec.observation:
        raise ConfigError("frame_stack needs policies with observations of one shape")
    parts = tuple(PolicySpec(name, policies[name], own[name].spec) for name in policies)
    count = sum(len(places) for places in policies.values())
    limit = first.spec.max_episode_steps
    spec = EnvSpec(
        first.spec.env_id,
        observation,
        action,
        None,
        max_episode_steps=limit,
        agents=count,
        policies=parts,
    )
    owner = {place: own[name] for name, places in policies.items() for place in places}
    seats = tuple(_seat(owner[place], spec) for place in range(count))
    return replace(first, spec=spec, seats=seats)


def common(specs: Sequence[ArraySpec]) -> ArraySpec:
    """The form that all of these fit into."""
    if all(spec == specs[0] for spec in specs):
        return specs[0]
    return ArraySpec((max(math.prod(spec.shape) for spec in specs),), "float32")


def _seat(own: SpaceAdapter, spec: EnvSpec) -> SpaceAdapter:
    encode, decode = own.encode, own.decode
    if own.spec.observation != spec.observation:
        encode = _widening(own.encode, spec.observation)
    acted = own.spec.action
    if acted != spec.action or own.spec.n_actions is not None:
        decode = _narrowing(own.decode, own.spec)
    return SpaceAdapter(spec, encode, decode, own.frames)


def _widening(encode: Callable[[Any], Any], form: ArraySpec) -> Callable[[Any], Any]:
    def widened(observation: Any) -> np.ndarray:
        flat = np.ravel(encode(observation))
        row = form.zeros()
        row[: flat.size] = flat
        return row

    return widened


def _narrowing(decode: Callable[[Any], Any], own: EnvSpec) -> Callable[[Any], Any]:
    size = math.prod(own.action.shape)

    def narrowed(action: Any) -> Any:
        row = np.ravel(action)[:size]
        if own.n_actions is not None:
            return decode(int(row[0]))
        return decode(row.reshape(own.action.shape).astype(own.action.dtype))

    return narrowed
