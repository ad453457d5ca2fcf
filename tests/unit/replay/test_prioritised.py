"""The prioritised replay: frequencies, importance weights, stale updates, checkpoints."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from exarl.replay import PrioritisedReplay
from exarl.replay.prioritised import EPSILON
from exarl.types import Arrays


def rows(first: int, count: int) -> Arrays:
    return {"n": np.arange(first, first + count)}


def filled(capacity: int, count: int, alpha: float = 1.0) -> PrioritisedReplay:
    replay = PrioritisedReplay(capacity, alpha)
    replay.add(rows(0, count))
    return replay


def shares(replay: PrioritisedReplay, seed: int = 0, count: int = 40_000) -> dict[int, float]:
    """How often each row is drawn, as a share."""
    drawn = replay.sample(np.random.default_rng(seed), count)["n"]
    found, counts = np.unique(drawn, return_counts=True)
    return dict(zip(found.tolist(), (counts / count).tolist(), strict=True))


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_frequencies_follow_the_priorities(alpha: float) -> None:
    replay = filled(50, 70, alpha)
    priorities = np.random.default_rng(7).uniform(-3, 3, 50)
    replay.update(np.arange(20, 70), priorities)
    expected = (np.abs(priorities) + EPSILON) ** alpha
    p_values = []
    for seed in range(10):
        drawn = replay.sample(np.random.default_rng(seed), 200, 64)["n"].ravel() - 20
        counts = np.bincount(drawn, minlength=50)
        p_values.append(stats.chisquare(counts, drawn.size * expected / expected.sum()).pvalue)
    assert min(p_values) > 1e-4
    assert np.mean(p_values) > 0.2


def test_importance_weights_by_hand() -> None:
    """Priorities 1, 2 and 4: N p is 3/7, 6/7 and 12/7; the rarest of a batch weighs 1."""
    replay = filled(3, 3)
    replay.update(np.arange(3), np.array([1.0, 2.0, 4.0]) - EPSILON)
    drawn = replay.sample(np.random.default_rng(0), 100, 4, beta=0.5)
    by_hand = np.array([7 / 3, 7 / 6, 7 / 12])[drawn["n"]] ** 0.5
    assert drawn["weight"].dtype == np.float32
    np.testing.assert_allclose(drawn["weight"], by_hand / by_hand.max(1, keepdims=True), rtol=1e-6)
    assert {tuple(row) for row in drawn["n"].tolist() if 0 not in row}, "some batch has no rarest"
    np.testing.assert_array_equal(
        replay.sample(np.random.default_rng(0), 5, beta=0.0)["weight"], np.ones(5, np.float32)
    )


@given(st.integers(1, 9), st.lists(st.integers(0, 12), min_size=1, max_size=8))
@settings(deadline=None)
def test_the_index_is_the_number_of_the_row(capacity: int, counts: list[int]) -> None:
    replay, first = PrioritisedReplay(capacity), 0
    for count in counts:
        replay.add(rows(first, count))
        first += count
    if first:
        drawn = replay.sample(np.random.default_rng(0), 4, 50)
        assert drawn["index"].dtype == np.int64
        np.testing.assert_array_equal(drawn["index"], drawn["n"])


def test_updates_of_rows_that_gave_way_are_passed_over() -> None:
    replay = filled(4, 4)
    replay.add(rows(4, 2))  # now 2, 3, 4 and 5, all of priority 1
    before = replay.state()["priorities"]
    replay.update(np.array([0, 1]), np.array([0.0, 0.5]))
    np.testing.assert_array_equal(replay.state()["priorities"], before)
    replay.update(np.array([0, 3]), np.array([0.0, 0.0]))  # only 3 is still there
    assert shares(replay).keys() == {2, 4, 5}


def test_new_rows_get_the_largest_priority_seen() -> None:
    replay = filled(4, 2)
    replay.update(np.array([0]), np.array([-8.0]))
    replay.update(np.array([0]), np.array([2.0]))
    replay.add(rows(2, 1))
    np.testing.assert_allclose(replay.state()["priorities"], [2, 1, 8], rtol=1e-5)


def test_of_duplicates_the_last_wins_in_stacks_too() -> None:
    replay = filled(4, 2)
    replay.update(np.array([[0, 1], [1, 0]]), np.array([[9.0, 9.0], [3.0, 5.0]], np.float32))
    np.testing.assert_allclose(replay.state()["priorities"], [5, 3], rtol=1e-5)


def test_an_unreachable_row_does_not_exist() -> None:
    replay = filled(2, 2, 0.6)
    replay.update(np.array([0, 1]), np.array([0.0, 0.0]))
    assert shares(replay).keys() == {0, 1}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_priority_that_is_not_finite_is_refused(bad: float) -> None:
    replay = filled(2, 2)
    with pytest.raises(ValueError, match="finite"):
        replay.update(np.array([0, 1]), np.array([1.0, bad]))
    assert replay.state()["priorities"].tolist() == [1, 1]


@pytest.mark.parametrize("capacity", [3, 6, 20])
def test_priorities_survive_a_move(capacity: int) -> None:
    replay = filled(6, 10)
    replay.update(np.arange(4, 10), np.arange(4.0, 10.0))
    other = PrioritisedReplay(capacity, 1.0)
    other.restore(replay.state())
    kept = np.arange(10 - min(capacity, 6), 10)
    found = shares(other)
    assert list(found) == kept.tolist()
    np.testing.assert_allclose(list(found.values()), kept / kept.sum(), atol=0.01)
    other.add(rows(10, 1))
    np.testing.assert_allclose(other.state()["priorities"][-2:], [9, 9], rtol=1e-5)


def test_a_restored_replay_takes_the_same_updates() -> None:
    replay, other = filled(6, 10), PrioritisedReplay(6, 1.0)
    other.restore({name: array.copy() for name, array in replay.state().items()})
    for store in (replay, other):
        drawn = store.sample(np.random.default_rng(0), 8)
        store.update(drawn["index"], drawn["n"].astype(np.float32))
    one, two = replay.state(), other.state()
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])


def test_restoring_an_empty_replay_empties() -> None:
    replay = filled(5, 5)
    replay.restore(PrioritisedReplay(5).state())
    with pytest.raises(ValueError, match="empty"):
        replay.sample(np.random.default_rng(0), 1)
    replay.add(rows(0, 2))
    assert shares(replay).keys() == {0, 1}
