"""Spaces and their values on the wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from exarl.envs.external.protocol import Kind, Message, ProtocolError, decode, encode
from exarl.envs.external.spaces import (
    action_port,
    check_value,
    port,
    read_spaces,
    spaces_message,
)

TRAVEL = [
    spaces.Box(-1, 1, (3,), np.float32),
    spaces.Box(-np.inf, np.inf, (2, 3), np.float64),
    spaces.Box(0, 255, (4, 5, 1), np.uint8),
    spaces.Box(np.array([-1.0, 0.0]), np.array([np.inf, 2.0]), dtype=np.float64),
    spaces.Discrete(7),
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([2, 5, 3]),
]


@pytest.mark.parametrize("space", TRAVEL, ids=str)
def test_a_space_arrives_as_it_left(space: Any) -> None:
    message = decode(encode(spaces_message(space, spaces.Discrete(2))))
    assert read_spaces(message) == (space, spaces.Discrete(2))
    message = decode(encode(spaces_message(TRAVEL[0], space)))
    assert read_spaces(message)[1] == space


OTHERS = [
    spaces.MultiBinary(4),
    spaces.Box(-5, 5, (2,), np.int32),
    spaces.Box(-1, 1, (2,), np.float16),
    spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Box(0, 1, (1, 2))),
    spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Box(0, 1, (1,)))),
]


@pytest.mark.parametrize("space", [*TRAVEL, *OTHERS], ids=str)
def test_values_arrive_as_they_left(space: Any) -> None:
    way = action_port(space)
    assert read_spaces(decode(encode(spaces_message(way.space, way.space))))[0] == way.space
    space.seed(1)
    for _ in range(20):
        value = space.sample()
        array = way.send(value)
        check_value(way.space, array, "the value")
        (arrived,) = decode(encode(Message(Kind.STEP, (array,)))).arrays
        again = way.receive(arrived)
        assert space.contains(again)
        np.testing.assert_array_equal(spaces.flatten(space, again), spaces.flatten(space, value))


def test_a_mixed_observation_is_flattened() -> None:
    space = spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Discrete(3))
    way = port(space)
    value = {"a": np.array([0.5, -0.5], np.float32), "b": 2}
    np.testing.assert_array_equal(way.send(value), [0.5, -0.5, 0, 0, 1])
    assert way.space.contains(way.send(value).astype(way.space.dtype))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(2)),
    ],
    ids=str,
)
def test_actions_that_cannot_travel(space: Any) -> None:
    with pytest.raises(ValueError, match="cannot travel"):
        action_port(space)


@pytest.mark.parametrize(
    ("space", "array"),
    [
        (TRAVEL[0], np.zeros(3)),
        (TRAVEL[0], np.zeros(4, np.float32)),
        (TRAVEL[4], np.array(7)),
        (TRAVEL[4], np.array(-1)),
        (TRAVEL[4], np.zeros(1, np.int64)),
        (TRAVEL[4], np.array(1.0)),
        (TRAVEL[6], np.array([1, 5, 1])),
    ],
)
def test_a_value_of_another_space_is_refused(space: Any, array: np.ndarray) -> None:
    with pytest.raises(ProtocolError):
        check_value(space, array, "the value")


BAD = [
    (1, np.zeros(2), np.zeros(3)),
    (1, np.ones(2), np.zeros(2)),
    (1, np.full(2, np.nan), np.zeros(2)),
    (2, np.array(0), np.array(0)),
    (2, np.array(2.0), np.array(0.0)),
    (2, np.array([2, 2]), np.array([0, 0])),
    (3, np.array([2, -1]), np.array([0, 0])),
    (4, np.array(2), np.array(0)),
]


@pytest.mark.parametrize(("kind", "first", "second"), BAD)
def test_a_space_that_is_none(kind: int, first: np.ndarray, second: np.ndarray) -> None:
    good = np.array(2), np.array(0)
    kinds = np.array([kind, 2], np.uint8)
    with pytest.raises(ProtocolError):
        read_spaces(Message(Kind.SPACES, (kinds, first, second, *good)))
    with pytest.raises(ProtocolError):
        read_spaces(Message(Kind.SPACES, (kinds[::-1].copy(), *good, first, second)))
