"""Heaters along one rod, each controlled by an agent that sees what is near it.

    exarl train --agent PPO-v0 --env heaters:Heaters-v0 --envs_per_actor 24 --gamma 0.95
    exarl evaluate RUN heaters:Proportional heaters:Constant

The temperature u(x, t) of a rod of length 1 with insulated ends obeys

    u_t = DIFFUSION u_xx - LOSS u + sum of power_i shape_i(x)

and shall follow a profile that is drawn at the start of each episode. The class has PettingZoo's
parallel interface, for which PettingZoo is not needed.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

CELLS, DIFFUSION, LOSS, TIME_STEP, MOST_POWER = 60, 0.01, 0.5, 0.1, 1.0
STEPS = 80
"""Steps of an episode: 8 units of time, in which the rod would lose its heat four times."""


class Heaters:
    """An agent sees how far the rod is above its profile left of the heater, there and right of it, the
    profile at these three places, and its own power. Its reward is minus ten times the mean squared
    error of its part of the rod. Actions from -1 to 1 are powers from 0 to MOST_POWER.
    """

    def __init__(self, heaters: int = 6) -> None:
        self.possible_agents = [f"heater_{i}" for i in range(heaters)]
        self.agents = [*self.possible_agents]
        self._x = (np.arange(CELLS) + 0.5) / CELLS
        width = 1 / heaters
        middles = (np.arange(heaters) + 0.5) * width
        shapes = np.exp(-0.5 * ((self._x[:, None] - middles) / (0.2 * width)) ** 2)
        self._shapes = shapes * width * CELLS / shapes.sum(0)  # on average 1 in the heater's part
        self._part = np.minimum(self._x / width, heaters - 1).astype(int)
        seen = np.stack([middles - width / 2, middles, middles + width / 2], 1)
        self._seen = np.clip((seen * CELLS).astype(int), 0, CELLS - 1)
        second = np.eye(CELLS, k=1) + np.eye(CELLS, k=-1)
        second -= np.diag(second.sum(0))  # nothing flows out at the ends
        change = DIFFUSION * CELLS**2 * second - LOSS * np.eye(CELLS)
        self._forward = np.linalg.inv(np.eye(CELLS) - TIME_STEP * change)  # implicit Euler

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return spaces.Box(-np.inf, np.inf, (7,), np.float32)

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        random = np.random.default_rng(seed)
        waves = np.cos(np.pi * np.outer(self._x, np.arange(1, 4))) @ random.normal(0, 0.15, 3)
        self._profile = np.clip(random.uniform(0.5, 1.1) + waves, 0.1, 1.6)
        self._heat, self._steps = np.zeros(CELLS), 0
        self._power = np.zeros(len(self.possible_agents))
        self.agents = [*self.possible_agents]
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        chosen = [float(np.ravel(actions[agent])[0]) for agent in self.possible_agents]
        self._power = MOST_POWER * (np.clip(chosen, -1, 1) + 1) / 2
        self._heat = self._forward @ (self._heat + TIME_STEP * self._shapes @ self._power)
        self._steps += 1
        error = np.bincount(self._part, (self._heat - self._profile) ** 2)
        error /= np.bincount(self._part)
        each, over = self.possible_agents, self._steps == STEPS
        self.agents = [] if over else [*each]
        infos = {a: {"power": p} for a, p in zip(each, self._power.tolist(), strict=True)}
        rewards = dict(zip(each, (-10 * error).tolist(), strict=True))
        never, ends = dict.fromkeys(each, False), dict.fromkeys(each, over)
        return self._observations(), rewards, never, ends, infos

    def get_state(self) -> dict[str, np.ndarray]:
        """What a checkpoint keeps of a running episode; without it EXARL repeats the actions."""
        names = {"heat": self._heat, "profile": self._profile, "power": self._power}
        return {**names, "steps": np.array(self._steps)}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        self._heat, self._profile, self._power = state["heat"], state["profile"], state["power"]
        self._steps = int(state["steps"])

    def close(self) -> None:
        """There is nothing to close."""

    def _observations(self) -> dict[str, np.ndarray]:
        profile = self._profile[self._seen]
        power = self._power[:, None]
        rows = np.concatenate([self._heat[self._seen] - profile, profile, power], 1)
        return dict(zip(self.possible_agents, rows.astype(np.float32), strict=True))


class Constant:
    """Every heater with the same power always: by default the best of 0.3, 0.35 ... 0.55."""

    def __init__(self, power: float = 0.45) -> None:
        self._action = np.array([2 * power / MOST_POWER - 1], np.float32)

    def act(self, observation: np.ndarray) -> np.ndarray:
        return self._action


class Proportional:
    """The power that would keep the profile if nothing flowed, and more where it is too cold."""

    def __init__(self, gain: float = 8.0) -> None:
        self._gain = gain

    def act(self, observation: np.ndarray) -> np.ndarray:
        excess, profile = observation[:3].mean(), observation[3:6].mean()
        power = np.clip(LOSS * profile - self._gain * excess, 0, MOST_POWER)
        return np.array([2 * power / MOST_POWER - 1], np.float32)


gymnasium.register("Heaters-v0", Heaters)
