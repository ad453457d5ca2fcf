"""Environments that tell numbers beside the reward; importing this registers them with Gymnasium."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl.envs.functional import FunctionalEnv, Functions, uniform
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


class Risk(NamedTuple):
    """How risky it is to act now, and the step of the episode."""

    risk: Any
    t: Any


class RiskFunctions(Functions):
    """``Risky`` as pure functions; it tells of every kind of numbers."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def initial(self, rng: Any, params: Any = None) -> Risk:
        return Risk(uniform(rng), self.xp.asarray(0))

    def transition(self, state: Risk, action: Any, rng: Any, params: Any = None) -> Risk:
        return Risk(uniform(rng), state.t + 1)

    def observation(self, state: Risk, rng: Any, params: Any = None) -> Any:
        return self.xp.asarray(state.risk, self.xp.float32).reshape(1)

    def reward(
        self, state: Risk, action: Any, next_state: Risk, rng: Any, params: Any = None
    ) -> Any:
        return 1.0 * action

    def terminal(self, state: Risk, rng: Any, params: Any = None) -> Any:
        return state.t == 10

    def state_info(self, state: Risk, params: Any = None) -> dict[str, Any]:
        xp = self.xp
        parts = {"square": state.t**2, "bad": xp.where(state.t == 3, xp.nan, 1.0)}
        field = state.t + xp.arange(100.0)
        return {
            "step": state.t,
            "force": xp.stack([state.t, -state.t]),
            "field": field,
            "parts": parts,
        }

    def transition_info(
        self, state: Risk, action: Any, next_state: Risk, params: Any = None
    ) -> dict[str, Any]:
        return {"risk": action * state.risk, "gain": 1.0 * action, "phase": "solid"}


class PureRisky(FunctionalEnv):
    """The Gymnasium form of ``RiskFunctions``."""

    def __init__(self) -> None:
        super().__init__(RiskFunctions)


class TwoFold(Telling):
    """Its rewards are two: 1, and the number of the step."""

    reward_space = spaces.Box(0, LENGTH, (2,), np.float32)

    def step(self, action: Any) -> Any:
        seen, _, over, cut, info = super().step(action)
        return seen, np.array([1.0, self.t], np.float32), over, cut, info


class Front(gymnasium.Env[Any, Any]):
    """Four steps, each with two rewards: how near the action is to 1, and how near to -1.

    At ``a`` they are 1 - (1 - a)^2 / 4 and 1 - (1 + a)^2 / 4: the best for weights (w, 1 - w) is to be
    at 2 w - 1, which gives both rewards a place on a curved front.
    """

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    reward_space = spaces.Box(0, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        at = float(np.clip(action[0], -1, 1))
        rewards = np.array([1 - (1 - at) ** 2 / 4, 1 - (1 + at) ** 2 / 4], np.float32)
        return np.full(1, self.t / 4, np.float32), rewards, self.t == 4, False, {}


for kind in (Telling, KeptTelling, Risky, PureRisky, TwoFold, Front):
    if f"{kind.__name__}-v0" not in gymnasium.registry:
        gymnasium.register(f"{kind.__name__}-v0", entry_point=f"support.telling:{kind.__name__}")
