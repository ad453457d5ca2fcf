"""An environment that is watched while it is checked: its calls are counted, timed and verified."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl.envs.base import Env, Info, Space
from exarl.envs.outcome import as_number, begin, not_five

Tell = Callable[[int, float], None]
"""Called after every reset and step with the steps made so far and the seconds they took."""


class Watched(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Reports every call, and raises ContractError for what does not follow Gymnasium.

    ``steps`` and ``spent`` are all steps so far and the seconds of all calls, ``seconds`` those of the
    last call.
    """

    def __init__(self, env: Env, tell: Tell) -> None:
        super().__init__(env)
        self._tell = tell
        self.steps = 0
        self.spent = 0.0
        self.seconds = 0.0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[object, Info]:
        return self._timed(lambda: begin(self.env, seed), 0), {}

    def step(self, action: object) -> tuple[object, float, bool, bool, Info]:
        found: Any = self._timed(lambda: self.env.step(action), 1)
        try:
            observation, reward, terminated, truncated, info = found
        except (TypeError, ValueError):
            raise not_five(found) from None
        return observation, as_number(reward), bool(terminated), bool(truncated), info

    def _timed(self, call: Callable[[], Any], steps: int) -> Any:
        started = time.perf_counter()
        found = call()
        self.seconds = time.perf_counter() - started
        self.spent += self.seconds
        self.steps += steps
        self._tell(self.steps, self.spent)
        return found


def actions(env: Watched, count: int) -> list[object]:
    """Random actions, the same at every call."""
    env.action_space.seed(0)
    return [env.action_space.sample() for _ in range(count)]


def trajectory(
    env: Watched, chosen: list[object], beside: Watched | None = None
) -> list[np.ndarray]:
    """An episode of seed 1; another environment ``beside`` it takes every second turn."""
    space = env.observation_space
    observation, _ = env.reset(seed=1)
    seen = [flat(space, observation)]
    if beside is not None:
        beside.reset(seed=7)
    going = beside is not None
    for action in chosen:
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append(np.append(flat(space, observation), reward))
        if terminated or truncated:
            break
        if going and beside is not None:
            going = not any(beside.step(action)[2:4])
    return seen


def difference(
    one: list[np.ndarray], other: list[np.ndarray], as_float32: bool = False
) -> str | None:
    """Where two trajectories differ, for a message; None when they do not."""
    kind = np.float32 if as_float32 else np.float64
    for step, (a, b) in enumerate(zip(one, other, strict=False)):
        if not np.array_equal(a.astype(kind), b.astype(kind), equal_nan=True):
            return f"differ at step {step}"
    return None if len(one) == len(other) else "have different lengths"


def paces(env: Watched, count: int) -> tuple[list[float], list[float]]:
    """Seconds of ``count`` steps, or as many as are made in two seconds, and of their resets."""
    env.reset(seed=6)
    steps: list[float] = []
    resets = [env.seconds]
    started = time.perf_counter()
    while len(steps) < count and (not steps or time.perf_counter() - started < 2):
        outcome = env.step(env.action_space.sample())
        steps.append(env.seconds)
        if outcome[2] or outcome[3]:
            env.reset()
            resets.append(env.seconds)
    return steps, resets


def flat(space: Space, observation: object) -> np.ndarray:
    """All numbers of an observation."""
    return np.asarray(spaces.flatten(space, observation), np.float64).ravel()
