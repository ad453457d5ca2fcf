"""What every replay promises: one body, all replays that ``exarl.replay`` exports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from exarl import replay as room
from exarl.types import Arrays


@pytest.fixture(params=room.__all__)
def kind(request: pytest.FixtureRequest) -> Any:
    return getattr(room, request.param)


def rows(first: int, count: int) -> Arrays:
    numbers = np.arange(first, first + count)
    return {"x": np.stack([numbers, numbers**2], 1).astype(np.float32), "n": numbers}


def drawn(replay: Any, seed: int = 0, count: int = 2000) -> Arrays:
    found: Arrays = replay.sample(np.random.default_rng(seed), count)
    return found


def test_holds_the_newest_and_keeps_rows_whole(kind: Any) -> None:
    replay = kind(10)
    for first in range(0, 28, 4):
        replay.add(rows(first, 4))
    found = drawn(replay)
    assert replay.size == 10
    assert set(found["n"].tolist()) == set(range(18, 28))
    np.testing.assert_array_equal(found["x"], np.stack([found["n"], found["n"] ** 2], 1))


def test_one_add_larger_than_the_replay_keeps_its_end(kind: Any) -> None:
    replay = kind(3)
    replay.add(rows(0, 11))
    assert set(drawn(replay)["n"].tolist()) == {8, 9, 10}


def test_same_generator_same_sample_in_stacks(kind: Any) -> None:
    replay = kind(50)
    replay.add(rows(0, 30))
    one, same, other = (replay.sample(np.random.default_rng(seed), 4, 8)["n"] for seed in (0, 0, 1))
    assert one.shape == (4, 8)
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("count", [5, 10, 17])
def test_a_restored_replay_continues_identically(kind: Any, count: int) -> None:
    replay, other = kind(10), kind(10)
    replay.add(rows(0, count))
    other.restore({name: array.copy() for name, array in replay.state().items()})
    for store in (replay, other):
        store.add(rows(count, 3))
    one, two = drawn(replay, 5), drawn(other, 5)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])


def test_another_capacity_keeps_the_newest(kind: Any) -> None:
    replay = kind(10)
    replay.add(rows(0, 14))
    for capacity, oldest in ((4, 10), (30, 4)):
        other = kind(capacity)
        other.restore(replay.state())
        assert set(drawn(other)["n"].tolist()) == set(range(oldest, 14))


def test_a_structure_that_changes_is_refused(kind: Any) -> None:
    replay = kind(10)
    replay.add(rows(0, 2))
    good = rows(2, 2)
    for bad in ({"n": good["n"]}, {**good, "n": good["n"].astype(float)}, {**good, "y": good["n"]}):
        with pytest.raises(ValueError):
            replay.add(bad)
    assert replay.size == 2


def test_an_empty_replay_cannot_be_sampled(kind: Any) -> None:
    with pytest.raises(ValueError):
        drawn(kind(10))
