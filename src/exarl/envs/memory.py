"""Two small environments that no policy without a memory can solve."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl.envs.base import Info
from exarl.envs.cartpole import SavedCartPole
from exarl.types import Arrays

SHOWN = [0, 2]
"""Where position and angle stand among CartPole's four numbers."""


class ExaMaskedCartPole(SavedCartPole):
    """CartPole-v1 without its two velocities.

    Observation: position of the cart and angle of the pole. All else is CartPole's.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)
        full = self.observation_space
        assert isinstance(full, spaces.Box)
        self.observation_space = spaces.Box(full.low[SHOWN], full.high[SHOWN])

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[np.ndarray, Info]:
        observation, info = super().reset(seed=seed, options=options)  # type: ignore[no-untyped-call]
        return observation[SHOWN], info

    def step(self, action: int | np.ndarray) -> tuple[np.ndarray, float, bool, bool, Info]:
        observation, reward, terminated, truncated, info = super().step(action)  # type: ignore[no-untyped-call]
        return observation[SHOWN], float(reward), terminated, truncated, info


class ExaRecall(gymnasium.Env[Any, Any]):
    """A cue is shown once; after ``delay`` blank steps the agent is asked which of ``cues`` it was.

    Observation: the cue as one-hot vector (at the first step only), then 1 when it is asked for,
    then 1 when there is nothing to see. Action: the name of a cue, which counts only when asked: 1 if
    it is right, else 0, and the episode ends. Without a memory the mean return is 1/``cues`` at best.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, cues: int = 4, delay: int = 8) -> None:
        if cues < 2 or delay < 0:
            raise ValueError(f"cues must be at least 2 and delay 0, not {cues} and {delay}")
        self.observation_space = spaces.Box(0, 1, (cues + 2,))
        self.action_space = spaces.Discrete(cues)
        self._cues = cues
        self._asked = delay + 1  # steps after which the cue is asked for
        self._cue = 0
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self._cue = int(self.np_random.integers(self._cues))
        self._steps = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, Info]:
        answered = self._steps >= self._asked
        self._steps += 1
        return self._observe(), float(answered and action == self._cue), answered, False, {}

    def get_state(self) -> Arrays:
        """The cue and the steps so far."""
        return {"cue": np.array(self._cue), "steps": np.array(self._steps)}

    def set_state(self, state: Arrays) -> None:
        self._cue, self._steps = int(state["cue"]), int(state["steps"])

    def _observe(self) -> np.ndarray:
        observation = np.zeros(self._cues + 2, np.float32)
        shown = {0: self._cue, self._asked: self._cues}.get(self._steps, self._cues + 1)
        observation[shown] = 1
        return observation
