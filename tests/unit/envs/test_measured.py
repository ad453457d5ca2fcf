"""What random play shows: speed, episodes, and the size of rewards."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from exarl.envs.measured import DISCOUNT, measure
from exarl.envs.watched import Watched


class Paying(gymnasium.Env[Any, Any]):
    """Episodes of ``length`` steps (0: without an end), each of ``reward`` and of ``seconds``."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, length: int, reward: float, seconds: float = 0.0, box: bool = False) -> None:
        self.length, self.reward, self.seconds, self.step_number = length, reward, seconds, 0
        self.action_space = spaces.Box(-1, 1, (1,)) if box else spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.step_number = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_number += 1
        time.sleep(self.seconds)
        over = self.step_number == self.length
        return np.zeros(1, np.float32), self.reward, over, False, {}


def watched(*words: Any, **options: Any) -> Watched:
    return Watched(Paying(*words, **options), lambda *_: None)


@pytest.mark.parametrize("reward", [-3.0, 0.01])
def test_rewards_and_their_sums(reward: float) -> None:
    found = measure(watched(4, reward), 40)
    assert found.steps == 40
    assert found.reward == pytest.approx(abs(reward))
    assert found.value == pytest.approx(abs(reward) * (1 - DISCOUNT**4) / (1 - DISCOUNT))
    assert found.episode == 4
    assert not found.continuous


def test_without_an_end() -> None:
    found = measure(watched(0, 1.0, box=True), 100)
    assert found.episode is None
    assert found.continuous


def test_time_is_limited() -> None:
    found = measure(watched(0, 1.0, 0.01), 1000, seconds=0.1)
    assert 1 <= found.steps <= 11
    assert 0.01 <= found.step_s <= found.slowest_s
