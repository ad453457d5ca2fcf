"""Observations without some of their parts."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from exarl.envs.dropped import Dropped
from exarl.errors import ConfigError


class Unordered(gymnasium.Env[Any, Any]):
    """Gives the parts in another order than its space has them, which is allowed."""

    observation_space = spaces.Dict(
        {
            "a": spaces.Discrete(4),
            "b": spaces.Dict({"c": spaces.Box(0, 1, (2,)), "d": spaces.Text(9)}),
            "e": spaces.Tuple([spaces.Text(9), spaces.Box(0, 9, (1,))]),
        }
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return {
            "e": ("word", np.full(1, 7.0, np.float32)),
            "b": {"d": "word", "c": np.full(2, 0.5, np.float32)},
            "a": 3,
        }, {}


def test_what_is_left_keeps_its_names_and_values() -> None:
    env = Dropped(Unordered(), ["b/d", "e/0"])
    seen, _ = env.reset()
    assert env.observation_space.contains(seen)
    assert seen["a"] == 3
    assert seen["b"]["c"].tolist() == [0.5, 0.5]
    assert seen["e"]["1"].tolist() == [7.0]


def test_a_part_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no part 'b/x' in the observations, which have a, b/c"):
        Dropped(Unordered(), ["b/x"])
