"""An environment with several rewards, as one with their weighted sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from exarl.envs.base import Env, Info
from exarl.envs.outcome import not_five
from exarl.errors import ConfigError, EnvironmentFailure

PARTS = "reward"
"""The name in ``info`` under which the rewards are told one by one."""


class Weighted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The reward is the sum of the environment's rewards times ``weights``.

    The environment has a ``reward_space``, as those of MO-Gymnasium do; ConfigError where it has none,
    or as many weights as it has rewards are not given.
    """

    def __init__(self, env: Env, weights: Sequence[float]) -> None:
        space = getattr(env.unwrapped, "reward_space", None)
        if space is None:
            raise ConfigError(
                "weights: its reward is one number; one with several says so by a reward_space, as in"
                " mo-gymnasium"
            )
        if space.shape != (len(weights),):
            raise ConfigError(f"weights are {len(weights)}, but its rewards {space.shape}")
        super().__init__(env)
        self._weights = np.array(weights, np.float64)

    def step(self, action: object) -> tuple[object, float, bool, bool, Info]:
        """EnvironmentFailure where there are not as many rewards as weights."""
        found: Any = self.env.step(action)
        try:
            observation, rewards, terminated, truncated, info = found
        except (TypeError, ValueError):
            raise not_five(found) from None
        parts = np.asarray(rewards)
        if parts.shape != self._weights.shape or parts.dtype.kind not in "biuf":
            what = f"rewards of shape {parts.shape}" if parts.ndim else "one reward"
            raise EnvironmentFailure(f"{what}, but weights are {len(self._weights)}", "shape")
        told = info if isinstance(info, dict) else {}
        total = float(parts @ self._weights)
        return observation, total, terminated, truncated, {**told, PARTS: parts}
