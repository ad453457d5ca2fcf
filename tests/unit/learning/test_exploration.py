"""Random streams belong to environments; schedules and epsilon-greedy do what they say."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from exarl.learning.exploration import (
    EPISODE,
    EVALUATION,
    EXPLORATION,
    LEARNER,
    Streams,
    episode_seed,
    epsilon_at,
    epsilon_greedy,
    generator,
    json_state,
    restore_state,
)

DRAWS = st.lists(st.integers(1, 700), min_size=1, max_size=8)


def drawn(streams: Streams, counts: Sequence[int]) -> np.ndarray:
    """[B, sum(counts)], copied."""
    return np.concatenate([streams.uniform(count) for count in counts], 1)


@given(st.integers(0, 2**32), DRAWS, st.sampled_from([[[0, 1], [2, 3]], [[3, 1], [0], [2]]]))
@settings(max_examples=25, deadline=None)
def test_an_environment_sees_its_numbers_whatever_the_grouping(
    seed: int, counts: list[int], groups: list[list[int]]
) -> None:
    together = drawn(Streams(seed, [0, 1, 2, 3]), counts)
    for ids in groups:
        np.testing.assert_array_equal(drawn(Streams(seed, ids), counts), together[ids])


@given(DRAWS, DRAWS)
@settings(max_examples=25, deadline=None)
def test_the_size_of_the_draws_does_not_matter(before: list[int], after: list[int]) -> None:
    total = sum(before) + sum(after)
    np.testing.assert_array_equal(
        drawn(Streams(3, [0, 5]), [*before, *after]), Streams(3, [0, 5]).uniform(total)
    )


@given(DRAWS, DRAWS, DRAWS)
@settings(max_examples=40, deadline=None)
def test_seek_continues_exactly(before: list[int], lost: list[int], after: list[int]) -> None:
    streams = Streams(11, [2, 7])
    drawn(streams, before)
    position = streams.position
    assert position == sum(before)
    expected = drawn(streams, after)
    fresh = Streams(11, [2, 7])
    drawn(fresh, lost)
    fresh.seek(position)
    assert fresh.position == position
    np.testing.assert_array_equal(drawn(fresh, after), expected)
    assert fresh.position == position + sum(after)


@pytest.mark.parametrize("count", [511, 512, 513, 1024, 2000])
def test_nothing_is_lost_or_repeated_at_a_chunk_boundary(count: int) -> None:
    streams = Streams(0, [4])
    numbers = drawn(streams, [count - 1, 2, 3])[0]
    assert len(set(numbers.tolist())) == len(numbers)
    assert streams.position == len(numbers)
    expected = generator(0, EXPLORATION, 4).random(len(numbers))
    np.testing.assert_array_equal(numbers, expected)


def test_earlier_draws_stay_what_they_were() -> None:
    streams = Streams(0, [0])
    first = streams.uniform(500)
    kept = first.copy()
    streams.uniform(500)
    np.testing.assert_array_equal(first, kept)


def test_streams_of_environments_kinds_and_seeds_differ() -> None:
    def start(seed: int, env: int, kind: int) -> tuple[float, ...]:
        return tuple(Streams(seed, [env], kind).uniform(3)[0].tolist())

    names = [(s, e, k) for s in range(3) for e in range(5) for k in (EXPLORATION, EVALUATION)]
    assert len({start(*name) for name in names}) == len(names)
    assert len(Streams(0, [4, 9, 2])) == 3


def test_streams_are_uniform_and_uncorrelated() -> None:
    numbers = Streams(1, range(8)).uniform(4000)
    assert stats.kstest(numbers.ravel(), "uniform").pvalue > 1e-3
    off_diagonal = np.corrcoef(numbers)[~np.eye(8, dtype=bool)]
    assert np.abs(off_diagonal).max() < 5 / np.sqrt(4000)


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_episode_seeds_are_distinct_and_in_range(seed: int) -> None:
    names = [
        (env, episode, kind)
        for env in range(12)
        for episode in range(40)
        for kind in (EPISODE, EVALUATION)
    ]
    seeds = [episode_seed(seed, *name) for name in names]
    assert len(set(seeds)) == len(seeds)
    assert all(isinstance(s, int) and 0 <= s < 2**31 for s in seeds)
    assert max(seeds) > 2**30  # the range is used


def test_episode_seeds_follow_from_the_run_seed() -> None:
    assert episode_seed(1, 2, 3) == episode_seed(1, 2, 3) == episode_seed(1, 2, 3, EPISODE)
    assert len({episode_seed(seed, 2, 3) for seed in range(100)}) == 100


def test_geometric_epsilon() -> None:
    assert epsilon_at(0, 1.0, 0.05, 0.99, 0) == 1.0
    assert epsilon_at(10, 1.0, 0.05, 0.99, 0) == pytest.approx(0.99**10)
    assert epsilon_at(10**9, 1.0, 0.05, 0.99, 0) == 0.05
    assert epsilon_at(10**6, 0.3, 0.05, 1.0, 0) == 0.3


def test_linear_epsilon() -> None:
    values = [epsilon_at(step, 0.8, 0.2, 0.5, 100) for step in (0, 25, 50, 100, 5000)]
    assert values == pytest.approx([0.8, 0.65, 0.5, 0.2, 0.2])


@given(st.integers(0, 10**7), st.floats(0, 1), st.floats(0, 1), st.floats(0.5, 1))
def test_epsilon_stays_between_its_ends(steps: int, start: float, end: float, decay: float) -> None:
    low, high = min(start, end), max(start, end)
    for linear in (0, 1000):
        value = epsilon_at(steps, start, end, decay, linear)
        assert low - 1e-12 <= value <= high + 1e-12


def explored(seed: int, epsilon: float, count: int = 20_000) -> np.ndarray:
    """How often each of 5 actions is taken when action 3 is best."""
    q_values = np.tile(np.float32([0, 1, -1, 2, 0]), (count, 1))
    uniform = np.random.default_rng(seed).random((count, 2))
    return np.bincount(epsilon_greedy(np, q_values, epsilon, uniform), minlength=5)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_epsilon_greedy_frequencies(epsilon: float) -> None:
    expected = np.full(5, epsilon / 5)
    expected[3] += 1 - epsilon
    counts = [explored(seed, epsilon) for seed in range(10)]
    p_values = [stats.chisquare(c, expected * c.sum()).pvalue for c in counts]
    assert min(p_values) > 1e-4
    assert stats.chisquare(np.sum(counts, 0), expected * np.sum(counts)).pvalue > 1e-3


def test_epsilon_zero_is_greedy_and_the_first_of_equals_wins() -> None:
    q_values = np.float32([[1, 3, 2], [5, 5, 0]])
    uniform = np.zeros((2, 2))
    np.testing.assert_array_equal(epsilon_greedy(np, q_values, 0.0, uniform), [1, 0])


def test_exploration_is_decided_environment_by_environment() -> None:
    q_values = np.tile(np.float32([0, 9, 0, 0]), (3, 1))
    uniform = np.array([[0.09, 0.99], [0.1, 0.99], [0.0, 0.0]])
    np.testing.assert_array_equal(epsilon_greedy(np, q_values, 0.1, uniform), [3, 1, 0])


@pytest.mark.parametrize("actions", [1, 2, 3, 5, 7, 1000, 4097])
def test_the_largest_number_below_one_is_still_an_action(actions: int) -> None:
    uniform = np.array([[0.0, np.nextafter(1.0, 0)]])
    chosen = epsilon_greedy(np, np.zeros((1, actions), np.float32), 1.0, uniform)
    assert chosen.tolist() == [actions - 1]


@given(st.integers(0, 300))
@settings(max_examples=20, deadline=None)
def test_generator_state_survives_json(count: int) -> None:
    rng = generator(5, LEARNER, 1)
    rng.integers(10, size=count, dtype=np.int32)  # may leave half a word behind
    text = json.dumps(json_state(rng))
    expected = rng.random(5), rng.integers(1000, size=7)
    other = generator(99, LEARNER, 1)
    restore_state(other, json.loads(text))
    np.testing.assert_array_equal(other.random(5), expected[0])
    np.testing.assert_array_equal(other.integers(1000, size=7), expected[1])
