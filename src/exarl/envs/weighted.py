"""An environment with several rewards, as one with their weighted sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from exarl.envs.base import Env, Info
from exarl.envs.outcome import not_five
from exarl.errors import EnvironmentFailure

PARTS = "reward"
"""The name in ``info`` under which the rewards are told one by one."""


class Weighted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The reward is the sum of the environment's rewards times ``weights``."""

    def __init__(self, env: Env, weights: Sequence[float]) -> None:
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
