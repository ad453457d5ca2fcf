"""An environment with several rewards, as one with their weighted sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl.envs.base import Env, Info, Space
from exarl.envs.masks import SEEN
from exarl.envs.outcome import begin_with_info, not_five
from exarl.errors import ConfigError, EnvironmentFailure

PARTS = "reward"
"""The name in ``info`` under which the rewards are told one by one."""
PREFERENCE = "preference"
"""The part of an observation that has the weights of the episode."""
_STREAM = 0x9EEF
"""Beside an episode's seed, for weights that do not depend on what the environment draws."""


class Weighted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The reward is the sum of the environment's rewards times ``weights``.

    With ``preferences`` the weights are a part of the observation. Without ``weights`` they are drawn
    for each episode, from its seed, uniformly among those that are not negative and have the sum 1.

    The environment has a ``reward_space``, as those of MO-Gymnasium do; ConfigError where it has none,
    or where the weights do not fit.
    """

    def __init__(self, env: Env, weights: Sequence[float], preferences: bool = False) -> None:
        space = getattr(env.unwrapped, "reward_space", None)
        if space is None:
            key = "preferences" if preferences else "weights"
            raise ConfigError(
                f"{key}: its reward is one number; one with several says so by a reward_space, as in"
                " mo-gymnasium"
            )
        self._draws = preferences and not weights
        if not self._draws and space.shape != (len(weights),):
            raise ConfigError(f"weights are {len(weights)}, but its rewards {space.shape}")
        self._weights = np.zeros(space.shape) if self._draws else np.array(weights, np.float64)
        if preferences and not self._draws and not _is_preference(self._weights):
            raise ConfigError(
                "weights that are a preference are not negative, and their sum is 1, not"
                f" {', '.join(map(str, weights))}"
            )
        super().__init__(env)
        self._shows, self._rng = preferences, np.random.default_rng()
        if preferences:
            self.observation_space = _with_preference(env.observation_space, space.shape)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        if self._draws:
            if seed is not None:
                self._rng = np.random.default_rng([seed, _STREAM])
            self._weights = self._rng.dirichlet(np.ones(self._weights.shape))
        if not self._shows:
            return self.env.reset(seed=seed, options=options)
        observation, info = begin_with_info(self.env, seed)
        return self._shown(observation), info  # type: ignore[return-value]

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
        seen = self._shown(observation) if self._shows else observation
        return seen, total, terminated, truncated, {**told, PARTS: parts}

    def _shown(self, observation: Any) -> dict[str, Any]:
        weights = self._weights.astype(np.float32)
        if isinstance(self.env.observation_space, spaces.Dict):
            return {**observation, PREFERENCE: weights}
        return {SEEN: observation, PREFERENCE: weights}


def _is_preference(weights: np.ndarray) -> bool:
    return bool((weights >= 0).all() and abs(weights.sum() - 1) < 1e-6)


def _with_preference(seen: Space, shape: tuple[int, ...]) -> spaces.Dict:
    """The space of observations with the weights as a further part."""
    own = seen.spaces if isinstance(seen, spaces.Dict) else {SEEN: seen}
    if PREFERENCE in own:
        raise ConfigError(f"preferences: the observations have a part '{PREFERENCE}' already")
    return spaces.Dict([*own.items(), (PREFERENCE, spaces.Box(0, 1, shape, np.float32))])
