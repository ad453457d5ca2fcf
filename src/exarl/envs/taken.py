"""The action that was taken instead of the policy's, where an environment says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from exarl.envs.base import Space
from exarl.envs.spaces import SpaceAdapter

TAKEN = "exarl_action"
"""The key of ``info`` under which ``step`` returns the action that was taken, if it was not the one
it was given: after a late answer, by an operator, or by a controller that keeps the plant safe."""


def encoder(adapter: SpaceAdapter, space: Space) -> Callable[[Any], Any]:
    """The inverse of ``adapter.decode``: an action of the environment as its agent has it.

    Of discretised actions it is the nearest.
    """
    count = adapter.spec.n_actions
    if count is None:
        assert isinstance(space, spaces.Box)
        return _of_box(space)
    table = np.array([np.ravel(adapter.decode(index)) for index in range(count)], np.float64)

    def encode(action: Any) -> int:
        return int(np.abs(table - np.ravel(action)).sum(1).argmin())

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
