"""Running statistics against NumPy's over everything at once, however it came in pieces."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exarl.learning.normalise import CLIP, Moments, normalised, sums_around, with_sums

splits = st.lists(st.integers(0, 9), min_size=1, max_size=8)


def rows(seed: int, count: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(rng.normal(scale=20), rng.uniform(0.1, 5), (count, *shape)).astype("f4")


def follow(pieces: list[np.ndarray], shape: tuple[int, ...]) -> Moments:
    moments = Moments.none(shape)
    for piece in pieces:
        moments = with_sums(moments, sums_around(moments, piece))
    return moments


def assert_moments_of(moments: Moments, seen: np.ndarray) -> None:
    assert moments.count == len(seen)
    exact = seen.astype(float)
    np.testing.assert_allclose(moments.mean, exact.mean(0), rtol=1e-9, atol=1e-9)
    deviation = exact.std(0)
    np.testing.assert_allclose(moments.std, np.where(deviation > 1e-6, deviation, 1), rtol=1e-7)


@settings(max_examples=40, deadline=None)
@given(sizes=splits, seed=st.integers(0, 1000), shape=st.sampled_from([(), (3,), (2, 2)]))
def test_pieces_give_the_moments_of_the_whole(
    sizes: list[int], seed: int, shape: tuple[int, ...]
) -> None:
    seen = rows(seed, sum(sizes), *shape)
    moments = follow(np.split(seen, np.cumsum(sizes)[:-1]), shape)
    assert moments.mean.shape == moments.std.shape == shape
    if len(seen):
        assert_moments_of(moments, seen)
    else:
        assert moments.count == 0


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(splits, min_size=1, max_size=4), seed=st.integers(0, 1000))
def test_the_sums_of_several_learners_add_up(sizes: list[list[int]], seed: int) -> None:
    """In each round every learner, some with nothing, adds its sums to one vector."""
    moments, seen = Moments.none((2,)), []
    for number, learners in enumerate(sizes):
        parts = [rows(seed + 10 * number + i, size, 2) for i, size in enumerate(learners)]
        moments = with_sums(moments, np.sum([sums_around(moments, p) for p in parts], 0))
        seen += parts
    if sum(map(sum, sizes)):
        assert_moments_of(moments, np.concatenate(seen))


def test_nothing_seen_or_nothing_varying_leaves_the_scale() -> None:
    np.testing.assert_array_equal(Moments.none((2,)).std, [1, 1])
    moments = follow([np.full((5, 2), 7.0)], (2,))
    np.testing.assert_array_equal(moments.std, [1, 1])
    np.testing.assert_array_equal(moments.mean, [7, 7])


def test_moments_far_from_zero_are_exact() -> None:
    seen = 1e6 + np.random.default_rng(0).normal(size=(400, 3))
    moments = follow(np.split(seen, 20), (3,))
    np.testing.assert_allclose(moments.std, seen.std(0), rtol=1e-3)


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
def test_normalised_by_hand_and_cut_off(xp: type) -> None:
    mean, std = np.float32([1, -2]), np.float32([2, 0.5])
    seen = np.float32([[1, -2], [5, -2.5], [1e6, -1e6]])
    expected = [[0, 0], [2, -1], [CLIP, -CLIP]]
    np.testing.assert_allclose(normalised(xp, *map(xp.asarray, (seen, mean, std))), expected)
