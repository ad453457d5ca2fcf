"""Environments that tell numbers beside the reward; importing this registers them with Gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl.types import Arrays

LENGTH = 5
"""Steps of an episode."""


class Telling(gymnasium.Env[Any, Any]):
    """Episodes of five steps; at step t the energy is t less than the episode's first number."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.first, self.t = float(self.np_random.integers(10)), 0
        return self._seen(), {"energy": 1e9}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        info = {
            "energy": self.first - self.t,
            "force": np.array([1.0, -self.t]),
            "field": np.arange(100.0),
            "phase": "solid",
            "bad": float("nan"),
            "action_mask": np.array([1, 1]),
        }
        return self._seen(), 1.0, self.t == LENGTH, False, info

    def _seen(self) -> Any:
        return np.array([self.first, self.t], np.float32)


class KeptTelling(Telling):
    """The same; it also gives its state."""

    def get_state(self) -> Arrays:
        return {"numbers": np.array([self.first, self.t])}

    def set_state(self, state: Arrays) -> None:
        self.first, self.t = float(state["numbers"][0]), int(state["numbers"][1])


for kind in (Telling, KeptTelling):
    if f"{kind.__name__}-v0" not in gymnasium.registry:
        gymnasium.register(f"{kind.__name__}-v0", entry_point=f"support.telling:{kind.__name__}")
