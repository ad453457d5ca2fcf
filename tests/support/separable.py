"""Tasks of several parts: actions of many factors, an image beside numbers, a text among them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Keys(gymnasium.Env[Any, Any]):
    """Turn each of eight keys as shown: the reward is the part that is right, 10**8 combinations."""

    observation_space = spaces.Box(-1, 1, (8,), np.float32)
    action_space: spaces.Space[Any] = spaces.MultiDiscrete([10] * 8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self._draw(), {}

    def _draw(self) -> np.ndarray:
        self.shown = self.np_random.integers(0, 2, 8)
        return 2.0 * self.shown.astype(np.float32) - 1

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        right = np.mean(action == np.where(self.shown, 7, 3))
        self.t += 1
        return self._draw(), float(right), self.t == 16, False, {}


class Switches(Keys):
    """The same with twenty switches, of which the first eight matter."""

    action_space = spaces.MultiBinary(20)

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        right = np.mean(action[:8] == self.shown)
        self.t += 1
        return self._draw(), float(right), self.t == 16, False, {}


class Camera(gymnasium.Env[Any, Any]):
    """Name the brighter half of an image, or the other one where the number says so."""

    observation_space = spaces.Dict(
        camera=spaces.Box(0, 255, (12, 12, 1), np.uint8),
        flip=spaces.Box(0, 1, (1,), np.float32),
        mission=spaces.Text(5),
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self._draw(), {}

    def _draw(self) -> dict[str, Any]:
        self.bright, self.flip = self.np_random.integers(0, 2, 2)
        image = self.np_random.integers(0, 100, (12, 12, 1)).astype(np.uint8)
        image[:, 6 * self.bright : 6 + 6 * self.bright] += 100
        return {"camera": image, "flip": np.array([self.flip], np.float32), "mission": "look"}

    def step(self, action: Any) -> Any:
        reward = float(action == self.bright ^ self.flip)
        self.t += 1
        return self._draw(), reward, self.t == 16, False, {}
