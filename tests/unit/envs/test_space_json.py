"""Spaces as JSON and back."""

from __future__ import annotations

import json

import numpy as np
import pytest
from gymnasium import spaces

from exarl.envs.base import Space
from exarl.envs.space_json import space_from_json, space_to_json

SPACES = [
    spaces.Box(-1, 1, (2, 3), np.float32),
    spaces.Box(np.array([-np.inf, 0.1]), np.array([np.inf, 2.5]), dtype=np.float64),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(-3, 2**40, (2,), np.int64),
    spaces.Box(0.0, 1.0, (), np.float32),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([2, 3, 4]),
    spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[0, 1], [2, 3]])),
    spaces.MultiBinary(4),
    spaces.MultiBinary([2, 3]),
    spaces.Text(7, min_length=2, charset="abc"),
    spaces.Dict(
        b=spaces.Discrete(2), a=spaces.Tuple([spaces.Box(-1, 1, (1,)), spaces.Discrete(3)])
    ),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_there_and_back(space: Space) -> None:
    text = json.dumps(space_to_json(space), allow_nan=False)
    assert space_from_json(json.loads(text)) == space


def test_equal_bounds_are_one_number() -> None:
    assert space_to_json(spaces.Box(0, 255, (210, 160, 3), np.uint8))["high"] == 255


def test_other_spaces_are_refused() -> None:
    with pytest.raises(ValueError, match="Graph"):
        space_to_json(spaces.Graph(spaces.Discrete(2), None))
    with pytest.raises(ValueError, match="'Sphere'"):
        space_from_json({"type": "Sphere"})
