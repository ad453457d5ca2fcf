"""The action that was taken instead of the policy's, where an environment says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from exarl.envs.base import Space
from exarl.envs.spaces import SpaceAdapter, axes_of
from exarl.envs.structured import JoinedActions

TAKEN = "exarl_action"
"""The key of ``info`` under which ``step`` returns the action that was taken, if it was not the one
it was given: after a late answer, by an operator, or by a controller that keeps the plant safe."""


def encoder(adapter: SpaceAdapter, space: Space) -> Callable[[Any], Any]:
    """The inverse of ``adapter.decode``: an action of the environment as its agent has it.

    Of discretised actions it is the nearest.
    """
    spec, joined = adapter.spec, JoinedActions.of(space)
    values = np.ravel if joined is None else joined.together
    plain = space if joined is None else joined.plain
    if spec.n_actions is not None:
        found = [values(adapter.decode(index)) for index in range(spec.n_actions)]
        table = np.array(found, np.float64)
        return lambda action: int(np.abs(table - values(action)).sum(1).argmin())
    if plain is None:
        assert joined is not None and joined.numbers is not None and joined.factors is not None
        numbers, chosen = _of_box(joined.numbers), _by_factor(joined.factors, spec.choices)

        def encode(action: Any) -> np.ndarray:
            vector = values(action)
            both = [numbers(vector[: spec.numbers]), chosen(vector[spec.numbers :])]
            return np.concatenate(both, dtype=np.float32)

        return encode
    if spec.choices:
        nearest = _by_factor(plain, spec.choices)
        return lambda action: nearest(np.ravel(values(action)))
    assert isinstance(plain, spaces.Box)
    stretched = _of_box(plain)
    return stretched if joined is None else lambda action: stretched(values(action))


def _by_factor(space: Space, choices: tuple[int, ...]) -> Callable[[Any], Any]:
    """For each number the index of its value, or of the nearest."""
    axes = axes_of(space, choices)

    def encode(numbers: np.ndarray) -> np.ndarray:
        found = [np.abs(axis - value).argmin() for axis, value in zip(axes, numbers, strict=True)]
        return np.array(found, np.int64)

    return encode


def _of_box(space: spaces.Box) -> Callable[[Any], Any]:
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    bounded = np.isfinite(low) & np.isfinite(high) & (high > low)
    with np.errstate(invalid="ignore"):
        middle = np.where(bounded, (low + high) / 2, 0)
        half = np.where(bounded, (high - low) / 2, 1)

    def encode(action: Any) -> np.ndarray:
        return ((np.asarray(action, np.float64) - middle) / half).astype(np.float32)

    return encode
