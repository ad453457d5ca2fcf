"""ExaLatency-v0: an environment that does nothing but take time, for scaling studies."""

from __future__ import annotations

import math
import time
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl.envs.base import Info
from exarl.types import Arrays


class ExaLatency(gymnasium.Env[Any, Any]):
    """Each step lasts ``mean_seconds`` on average and pays a reward of 1.

    Observation: ``observation_size`` numbers, the first the seconds the step was meant to take, the
    rest the number of steps so far. Action: one of two, without effect. The episode never
    terminates; it is cut after ``episode_steps``.
    ``mode`` sleep leaves the core idle, spin keeps it busy. ``distribution``: fixed, exponential, or
    lognormal with shape ``sigma``, all of the same mean.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(
        self,
        mean_seconds: float = 0.010,
        distribution: Literal["fixed", "exponential", "lognormal"] = "fixed",
        sigma: float = 1.0,
        mode: Literal["sleep", "spin"] = "sleep",
        observation_size: int = 4,
        episode_steps: int = 100,
    ) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (observation_size,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._size = observation_size
        self._mean = mean_seconds
        self._distribution = distribution
        self._sigma = sigma
        self._spin = mode == "spin"
        self._episode_steps = episode_steps
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(0.0), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, Info]:
        seconds = self._draw()
        if self._spin:
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                pass
        elif seconds > 0:
            time.sleep(seconds)
        self._steps += 1
        return self._observe(seconds), 1.0, False, self._steps >= self._episode_steps, {}

    def get_state(self) -> Arrays:
        """The steps so far and the generator's place, so that a restored episode is the same."""
        inner = self.np_random.bit_generator.state["state"]
        words = [
            inner[name] >> shift & (2**64 - 1) for name in ("state", "inc") for shift in (0, 64)
        ]
        return {"steps": np.array(self._steps), "generator": np.array(words, np.uint64)}

    def set_state(self, state: Arrays) -> None:
        self._steps = int(state["steps"])
        low, high, inc_low, inc_high = (int(word) for word in state["generator"])
        generator = self.np_random.bit_generator
        generator.state = {
            **generator.state,
            "state": {"state": high << 64 | low, "inc": inc_high << 64 | inc_low},
        }

    def _draw(self) -> float:
        if self._distribution == "exponential":
            return float(self.np_random.exponential(self._mean))
        if self._distribution == "lognormal":
            location = math.log(self._mean) - self._sigma**2 / 2 if self._mean > 0 else -math.inf
            return float(self.np_random.lognormal(location, self._sigma))
        return self._mean

    def _observe(self, seconds: float) -> np.ndarray:
        observation = np.empty(self._size, np.float32)
        observation[1:] = self._steps
        observation[0] = seconds
        return observation
