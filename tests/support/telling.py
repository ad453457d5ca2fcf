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


class Risky(gymnasium.Env[Any, Any]):
    """Ten steps, each with a newly drawn risk that the agent sees. Action 1 pays 1 and costs the risk.

    Always paid is 10 at a cost of 5. With a cost of at most 1.25 the best is to act below a risk of a
    half, which pays 5.
    """

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        info = {"risk": float(action) * float(self.risk[0]), "gain": float(action)}
        return self._draw(), float(action), self.t == 10, False, info

    def _draw(self) -> Any:
        self.risk = self.np_random.random(1, np.float32)
        return self.risk


class TwoFold(Telling):
    """Its rewards are two: 1, and the number of the step."""

    reward_space = spaces.Box(0, LENGTH, (2,), np.float32)

    def step(self, action: Any) -> Any:
        seen, _, over, cut, info = super().step(action)
        return seen, np.array([1.0, self.t], np.float32), over, cut, info


for kind in (Telling, KeptTelling, Risky, TwoFold):
    if f"{kind.__name__}-v0" not in gymnasium.registry:
        gymnasium.register(f"{kind.__name__}-v0", entry_point=f"support.telling:{kind.__name__}")
