"""ExaFaulty-v0: an environment that fails on purpose, to try out how a run copes with failures."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl.envs.base import Info
from exarl.envs.context import EnvContext

WAYS = ("raise", "crash", "hang", "nan", "shape")
BOOK = "failures.txt"


class ExaFaulty(gymnasium.Env[Any, Any]):
    """A random walk in the plane that is pushed by its action and paid for staying near the origin.

    Observation: the part of the episode that has passed, and the place. Action: push left, down, up or
    right. The episode never terminates; it is cut after ``episode_steps``.
    In each step it fails with the given probabilities: ``raise_p`` raises an error, ``crash_p`` ends
    the process by a segmentation fault (isolate it!), ``hang_p`` never returns, ``nan_p`` returns NaN,
    ``shape_p`` an observation of the wrong shape. Before it does, it writes the way into failures.txt
    in its work folder, so that what a run has counted can be compared. ``step_seconds`` is how long a
    step lasts, asleep.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form
    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(4)

    def __init__(
        self,
        raise_p: float = 0.0,
        crash_p: float = 0.0,
        hang_p: float = 0.0,
        nan_p: float = 0.0,
        shape_p: float = 0.0,
        episode_steps: int = 100,
        step_seconds: float = 0.0,
        context: EnvContext | None = None,
    ) -> None:
        chances = np.array([raise_p, crash_p, hang_p, nan_p, shape_p])
        if (chances < 0).any() or chances.sum() > 1:
            raise ValueError("the probabilities of failing are >= 0 and add up to 1 at most")
        self._edges = np.cumsum(chances).tolist()
        self._episode_steps = episode_steps
        self._seconds = step_seconds
        self._context = context

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self._steps = 0
        self._at = self.np_random.normal(size=2)
        return self._seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, Info]:
        chance = self.np_random.random()
        way = next((w for w, edge in zip(WAYS, self._edges, strict=True) if chance < edge), None)
        self._steps += 1
        self._at = self._at + 0.1 * self.np_random.normal(size=2)
        self._at[action // 2] += 0.2 * (action % 2) - 0.1
        seen, reward = self._seen(), -float(np.abs(self._at).sum())
        if way is not None:
            seen = self._fail(way, seen)
        if self._seconds > 0:
            time.sleep(self._seconds)
        return seen, reward, False, self._steps >= self._episode_steps, {}

    def _seen(self) -> np.ndarray:
        return np.array([self._steps / self._episode_steps, *self._at], np.float32)

    def _fail(self, way: str, seen: np.ndarray) -> np.ndarray:
        if self._context is not None:
            with (self._context.work_dir / BOOK).open("a", encoding="utf-8") as book:
                book.write(way + "\n")
        if way == "raise":
            raise RuntimeError("ExaFaulty raises, as configured")
        if way == "crash":
            ctypes.string_at(0)
        while way == "hang":
            time.sleep(3600)
        return seen * np.float32("nan") if way == "nan" else seen[:2]
