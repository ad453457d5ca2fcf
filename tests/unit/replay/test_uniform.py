"""The uniform replay against a deque, a chi-square test and its own checkpoint."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from exarl.replay import UniformReplay
from exarl.types import Arrays

ADDS = st.lists(st.integers(0, 12), max_size=10)


def rows(first: int, count: int) -> Arrays:
    """Rows that carry their number in every array."""
    numbers = np.arange(first, first + count)
    return {
        "observation": np.stack([numbers, -numbers], 1).astype(np.float32),
        "action": numbers.astype(np.int64),
    }


def filled(capacity: int, counts: list[int]) -> UniformReplay:
    replay, first = UniformReplay(capacity), 0
    for count in counts:
        replay.add(rows(first, count))
        first += count
    return replay


def held(replay: UniformReplay, seed: int = 0) -> set[int]:
    """Every row found by sampling, after checking that rows are whole."""
    found = replay.sample(np.random.default_rng(seed), 60 * replay.size)
    np.testing.assert_array_equal(found["observation"][:, 0], found["action"])
    np.testing.assert_array_equal(found["observation"][:, 1], -found["action"])
    return set(found["action"].tolist())


def copied(state: Arrays) -> Arrays:
    return {name: array.copy() for name, array in state.items()}


@given(st.integers(1, 9), ADDS)
@settings(deadline=None)
def test_holds_what_a_deque_would_hold(capacity: int, counts: list[int]) -> None:
    replay, model, first = UniformReplay(capacity), deque[int](maxlen=capacity), 0
    for count in counts:
        replay.add(rows(first, count))
        model.extend(range(first, first + count))
        first += count
        assert replay.size == len(model)
        if model:
            assert held(replay) == set(model)


@given(st.integers(1, 9), st.integers(1, 9), ADDS, st.integers(0, 7))
@settings(deadline=None)
def test_another_capacity_keeps_the_newest_in_order(
    before: int, after: int, counts: list[int], more: int
) -> None:
    total = sum(counts)
    other = UniformReplay(after)
    other.restore(copied(filled(before, counts).state()))
    model = deque(deque(range(total), maxlen=before), maxlen=after)
    other.add(rows(total, more))  # the oldest give way first, also after the move
    model.extend(range(total, total + more))
    assert other.size == len(model)
    if model:
        assert held(other) == set(model)


@given(st.integers(1, 9), ADDS, st.integers(0, 12), st.integers(0, 2**32))
@settings(deadline=None)
def test_a_restored_replay_samples_identically(
    capacity: int, counts: list[int], more: int, seed: int
) -> None:
    replay = filled(capacity, counts)
    other = UniformReplay(capacity)
    other.restore(copied(replay.state()))
    for store in (replay, other):
        store.add(rows(sum(counts), more))
    assert replay.size == other.size
    if replay.size:
        one = replay.sample(np.random.default_rng(seed), 3, 5)
        two = other.sample(np.random.default_rng(seed), 3, 5)
        for name in one:
            np.testing.assert_array_equal(one[name], two[name])


@pytest.mark.parametrize("counts", [[50], [30, 40, 33]])
def test_sampling_is_uniform(counts: list[int]) -> None:
    replay = filled(50, counts)
    oldest = sum(counts) - replay.size
    p_values = []
    for seed in range(10):
        drawn = replay.sample(np.random.default_rng(seed), 200, 64)["action"]
        p_values.append(stats.chisquare(np.bincount(drawn.ravel() - oldest)).pvalue)
    assert min(p_values) > 1e-4
    assert np.mean(p_values) > 0.2


def test_samples_have_the_leading_shape_and_are_copies() -> None:
    replay = filled(4, [4])
    drawn = replay.sample(np.random.default_rng(0), 6, 3)
    assert drawn["observation"].shape == (6, 3, 2)
    assert drawn["observation"].dtype == np.float32
    assert drawn["action"].shape == (6, 3)
    assert drawn["action"].dtype == np.int64
    for array in drawn.values():
        array[:] = 99
    assert held(replay) == {0, 1, 2, 3}


def test_added_arrays_are_copied() -> None:
    replay, added = UniformReplay(4), rows(0, 3)
    replay.add(added)
    added["action"][:] = 7
    added["observation"][:] = 7
    assert held(replay) == {0, 1, 2}


@pytest.mark.parametrize(
    "change",
    [
        {"action": np.zeros(3, np.int32)},
        {"observation": np.zeros((3, 3), np.float32)},
        {"observation": np.zeros((2, 2), np.float32)},
        {"extra": np.zeros(3)},
    ],
    ids=["dtype", "shape", "count", "name"],
)
def test_a_mismatch_is_refused_and_changes_nothing(change: Arrays) -> None:
    replay = filled(10, [3])
    before = copied(replay.state())
    with pytest.raises(ValueError):
        replay.add({**rows(3, 3), **change})
    for name, array in replay.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_a_missing_array_is_refused() -> None:
    replay = filled(10, [3])
    with pytest.raises(ValueError, match="observation"):
        replay.add({"action": np.zeros(3, np.int64)})


def test_a_refused_first_add_does_not_fix_the_layout() -> None:
    replay = UniformReplay(4)
    with pytest.raises(ValueError):
        replay.add({"action": np.zeros(3), "reward": np.zeros(2)})
    replay.add(rows(0, 3))
    assert held(replay) == {0, 1, 2}


def test_an_empty_replay_cannot_be_sampled_nor_one_of_no_capacity_made() -> None:
    with pytest.raises(ValueError, match="empty"):
        UniformReplay(3).sample(np.random.default_rng(0), 2)
    with pytest.raises(ValueError, match="capacity"):
        UniformReplay(0)


def test_state_holds_the_filled_part_only() -> None:
    state = filled(1000, [3]).state()
    assert {name: array.shape for name, array in state.items()} == {
        "next": (),
        "size": (),
        "rows/observation": (3, 2),
        "rows/action": (3,),
    }


def test_restoring_an_empty_replay_empties() -> None:
    replay = filled(5, [5])
    replay.restore(UniformReplay(5).state())
    assert replay.size == 0
    with pytest.raises(ValueError, match="empty"):
        replay.sample(np.random.default_rng(0), 1)
