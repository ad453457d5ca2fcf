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


class Valves(Keys):
    """Numbers and choices in one action, nested: the reward is the part that is right, 1 at most."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Dict(
        flow=spaces.Box(np.array([-2.0, 0.0], "f4"), np.array([2.0, 10.0], "f4")),
        pump=spaces.Discrete(3, start=1),
        locks=spaces.Tuple([spaces.MultiBinary(2), spaces.Box(0, 8, (1,), np.int64)]),
    )

    def _draw(self) -> np.ndarray:
        self.shown = self.np_random.integers(0, 2, 3)
        return 2.0 * self.shown.astype(np.float32) - 1

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        a, b, c = self.shown
        (first, second), turns = action["locks"]
        near = [
            1 - abs(action["flow"][0] - (2 * a - 1)) / 4,
            1 - abs(action["flow"][1] - 7) / 10,
            1 - abs(turns[0] - (2 + 4 * b)) / 8,
        ]
        right = [action["pump"] == 1 + a + b, first == c, second == 1]
        self.t += 1
        return self._draw(), float(np.mean([*near, *right])), self.t == 16, False, {}


class Doors(Keys):
    """Only choices, in a Dict; the pump must not be what the observation says."""

    observation_space = Valves.observation_space
    action_space = spaces.Dict(pump=spaces.Discrete(3), locks=spaces.MultiBinary([2, 1]))

    _draw = Valves._draw

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        right = [action["pump"] == self.shown[0], action["locks"][0, 0] == self.shown[1]]
        self.t += 1
        return self._draw(), float(np.mean(right)), self.t == 16, False, {}


class Flows(Keys):
    """Only numbers, in a Tuple."""

    observation_space = Valves.observation_space
    action_space = spaces.Tuple(
        [spaces.Box(-2, 2, (2,), np.float32), spaces.Box(0, 8, (1,), np.int64)]
    )

    _draw = Valves._draw

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        near = [1 - abs(action[0][0] - self.shown[0]) / 4, 1 - abs(action[1][0] - 4) / 8]
        self.t += 1
        return self._draw(), float(np.mean(near)), self.t == 16, False, {}


class Stiff(Valves):
    """Valves of which one choice of each number, another at each step, is not allowed."""

    forbidden = 0

    def action_masks(self) -> np.ndarray:
        self.closed = [self.t % 3, self.t % 2, (self.t + 1) % 2]
        return np.concatenate(
            [np.arange(n) != closed for n, closed in zip([3, 2, 2], self.closed, strict=True)]
        )

    def step(self, action: Any) -> Any:
        given = [action["pump"] - 1, *action["locks"][0]]
        type(self).forbidden += int(np.sum(np.equal(given, self.closed)))
        return super().step(action)
