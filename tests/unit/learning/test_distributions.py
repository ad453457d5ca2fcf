"""Distributions against SciPy, RLax and numerical integrals; and the normal random streams."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
from scipy import stats

from exarl.learning import distributions as dist
from exarl.learning.exploration import Streams

SEEDS = range(4)
both = pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
seeds = pytest.mark.parametrize("seed", SEEDS)


def normal(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


@pytest.mark.filterwarnings("ignore:Rlax softmax")
@both
@seeds
def test_log_softmax_and_entropy_equal_scipy_and_rlax(xp: Any, seed: int) -> None:
    logits = normal(seed, 6, 5, scale=3.0)
    log_p = np.asarray(dist.log_softmax(xp, xp.asarray(logits)))
    exact = np.exp(logits.astype(float))
    exact /= exact.sum(-1, keepdims=True)
    np.testing.assert_allclose(log_p, np.log(exact), rtol=1e-5, atol=1e-5)
    entropy = np.asarray(dist.categorical_entropy(xp, xp.asarray(logits)))
    np.testing.assert_allclose(entropy, stats.entropy(exact, axis=-1), rtol=1e-4, atol=1e-5)
    theirs = rlax.softmax().entropy(jnp.array(logits))
    np.testing.assert_allclose(entropy, theirs, rtol=1e-4, atol=1e-5)


@both
def test_log_softmax_of_huge_logits_is_finite(xp: Any) -> None:
    log_p = np.asarray(dist.log_softmax(xp, xp.asarray(np.float32([[1e4, 0, -1e4]]))))
    np.testing.assert_array_equal(log_p, [[0, -1e4, -2e4]])


@seeds
def test_categorical_samples_are_as_frequent_as_they_are_likely(seed: int) -> None:
    logits = normal(seed, 5)
    drawn = dist.categorical_sample(
        np, np.broadcast_to(logits, (20_000, 5)), np.random.default_rng(seed + 10).random(20_000)
    )
    expected = np.exp(dist.log_softmax(np, logits)).astype(float)
    counts = np.bincount(drawn, minlength=5)
    assert stats.chisquare(counts, 20_000 * expected / expected.sum()).pvalue > 1e-4


def test_a_categorical_sample_is_the_quantile_of_its_uniform_number() -> None:
    logits = np.log(np.float32([[0.2, 0.5, 0.3]] * 6))
    uniform = np.array([0.0, 0.19, 0.21, 0.69, 0.71, 1 - 2**-53])
    assert dist.categorical_sample(np, logits, uniform).tolist() == [0, 0, 1, 1, 2, 2]


def test_an_impossible_action_is_never_drawn() -> None:
    logits = np.array([[0.0, -np.inf, 0.0, -np.inf]] * 1000)
    drawn = dist.categorical_sample(np, logits, np.linspace(1e-6, 1 - 2**-53, 1000))
    assert set(drawn.tolist()) == {0, 2}


@both
@seeds
def test_gaussian_log_prob_and_entropy_equal_scipy(xp: Any, seed: int) -> None:
    actions, mean, log_std = normal(seed, 3, 7, 2)
    arguments = [xp.asarray(array) for array in (actions, mean, log_std)]
    scale = np.exp(log_std.astype(float))
    np.testing.assert_allclose(
        dist.gaussian_log_prob(xp, *arguments),
        stats.norm(mean, scale).logpdf(actions).sum(-1),
        rtol=1e-4,
        atol=1e-4,
    )
    np.testing.assert_allclose(
        dist.gaussian_entropy(xp, arguments[2]),
        stats.norm(mean, scale).entropy().sum(-1),
        rtol=1e-5,
        atol=1e-5,
    )


@both
@seeds
def test_squashed_log_prob_by_change_of_variables(xp: Any, seed: int) -> None:
    """The density of tanh(x) is that of x over the slope of tanh, here taken numerically."""
    noise, mean, log_std = (a.astype(float) for a in normal(seed, 3, 7, 2, scale=0.5))
    before = mean + np.exp(log_std) * noise
    step = 1e-5
    slope = (np.tanh(before + step) - np.tanh(before - step)) / (2 * step)
    expected = stats.norm(mean, np.exp(log_std)).logpdf(before) - np.log(slope)
    ours = dist.squashed_log_prob(xp, *(xp.asarray(a) for a in (noise, log_std, before)))
    np.testing.assert_allclose(ours, expected.sum(-1), rtol=1e-4, atol=1e-4)


def test_a_squashed_density_integrates_to_one() -> None:
    actions = np.linspace(-1, 1, 200_001)[1:-1]
    before, mean, log_std = np.arctanh(actions), 0.4, -0.3
    noise = (before - mean) * np.exp(-log_std)
    log_prob = dist.squashed_log_prob(
        np, noise[:, None], np.full((len(noise), 1), log_std), before[:, None]
    )
    assert np.exp(log_prob).sum() * (actions[1] - actions[0]) == pytest.approx(1, abs=1e-3)


@both
def test_extreme_actions_have_finite_log_probabilities(xp: Any) -> None:
    extreme = xp.asarray(np.float32([[-60.0], [60.0]]))
    zeros = xp.asarray(np.zeros((2, 1), np.float32))
    log_prob = np.asarray(dist.squashed_log_prob(xp, zeros, zeros, extreme))
    # log(1 - tanh(60)^2) = log 4 - 120
    exact = stats.norm.logpdf(0) - (np.log(4) - 120)
    np.testing.assert_allclose(log_prob, exact, rtol=1e-5)


@both
def test_softplus_does_not_overflow(xp: Any) -> None:
    x = np.float32([-200, -1, 0, 1, 200])
    np.testing.assert_allclose(
        dist.softplus(xp, xp.asarray(x)), np.logaddexp(0, x.astype(float)), rtol=1e-5, atol=1e-7
    )


# -- normal streams -------------------------------------------------------------------------------


@seeds
def test_normal_streams_are_standard_normal_and_independent(seed: int) -> None:
    streams = Streams(seed, [0, 1])
    drawn = np.stack([streams.normal(3) for _ in range(4000)])  # [4000, 2, 3]
    columns = drawn.reshape(4000, 6)
    for column in columns.T:
        assert stats.kstest(column, "norm").pvalue > 1e-4
    correlation = np.corrcoef(np.concatenate([columns[1:], columns[:-1]], 1).T) - np.eye(12)
    assert np.abs(correlation[:6]).max() < 0.08  # five standard deviations


def test_an_environment_draws_the_same_numbers_whatever_stands_beside_it() -> None:
    together, alone = Streams(5, [3, 7, 2]), Streams(5, [7])
    for count in (1, 4, 300, 2):
        np.testing.assert_array_equal(together.normal(count)[1:2], alone.normal(count))
    assert together.position == alone.position
    assert not np.array_equal(together.normal(2)[0], together.normal(2)[1])


def test_normal_streams_continue_from_their_position() -> None:
    streams, again = Streams(1, [0, 4]), Streams(1, [0, 4])
    streams.normal(3)
    streams.uniform(2)
    assert streams.position == 2 * 3 + 2
    again.seek(streams.position)
    np.testing.assert_array_equal(streams.normal(600), again.normal(600))


# -- what is allowed, and factors -----------------------------------------------------------------

CHOICES = (3, 1, 4)


def _masked(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    allowed = rng.random((200, 8)) < 0.4
    for first, last in ((0, 3), (3, 4), (4, 8)):
        allowed[np.arange(200), rng.integers(first, last, 200)] = True
    return rng.normal(size=(200, 8)).astype(np.float32) * 5, allowed


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize("choices", [(), CHOICES, (4, 4)])
def test_nothing_forbidden_is_ever_drawn_or_best(xp: Any, choices: tuple[int, ...]) -> None:
    for seed in range(3):
        logits, allowed = _masked(seed)
        if choices == (4, 4):
            allowed[:, [0, 4]] = True
        table = dist.among(xp, xp.asarray(logits), xp.asarray(allowed), choices)
        shape = table.shape[:-1]
        edges = (np.zeros(shape), np.full(shape, 1 - 1e-7), np.random.default_rng(9).random(shape))
        starts = np.cumsum([0, *choices[:-1]]) if choices else 0
        for uniform in edges:
            number = xp.asarray(uniform, np.float32)
            drawn = dist.sample_among(xp, table, number)
            explored = dist.uniform_among(xp, dist.is_allowed(table), number)
            for chosen in map(np.asarray, (drawn, explored, table.argmax(-1))):
                places = (starts + chosen).reshape(200, -1)
                assert np.take_along_axis(allowed, places, 1).all()


def test_what_is_allowed_is_explored_evenly() -> None:
    allowed = np.tile([False, True, False, True, True], (30_000, 1))
    drawn = dist.uniform_among(np, allowed, np.random.default_rng(0).random(30_000))
    np.testing.assert_allclose(np.bincount(drawn, minlength=5)[[1, 3, 4]], 10_000, rtol=0.04)


def test_a_few_rows_explore_as_many_do() -> None:
    rng = np.random.default_rng(5)
    allowed = rng.random((3000, 5)) < 0.5
    allowed[~allowed.any(1), 2] = True
    uniform = np.where(rng.random(3000) < 0.1, 1 - 1e-16, rng.random(3000))
    together = dist.uniform_among(np, allowed, uniform)
    for few in (1, 3):
        rows = zip(np.split(allowed, 3000 // few), np.split(uniform, 3000 // few), strict=True)
        drawn = np.concatenate([dist.uniform_among(np, *pair) for pair in rows])
        np.testing.assert_array_equal(drawn, together)
        assert drawn.dtype == together.dtype


def test_forbidden_actions_have_no_probability_and_no_gradient() -> None:
    logits, allowed = _masked(0)

    def entropy(logits: Any) -> Any:
        return dist.categorical_entropy(jnp, dist.among(jnp, logits, allowed, ())).sum()

    table = dist.among(np, logits, allowed, ())
    assert (np.exp(dist.log_softmax(np, table))[~allowed] == 0).all()
    gradient = np.asarray(jax.grad(entropy)(logits))
    assert np.isfinite(gradient).all()
    assert (gradient[~allowed] == 0).all()
    assert (gradient[allowed.sum(1) > 1] != 0).any()


def test_factors_of_different_sizes_are_independent_distributions() -> None:
    logits, _ = _masked(1)
    probabilities = np.exp(dist.log_softmax(np, dist.among(np, logits, None, CHOICES)))
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-5)
    for factor, (first, last) in enumerate(((0, 3), (3, 4), (4, 8))):
        own = np.exp(dist.log_softmax(np, logits[:, first:last]))
        np.testing.assert_allclose(probabilities[:, factor, : last - first], own, rtol=1e-5)
        assert (probabilities[:, factor, last - first :] == 0).all()


@both
@seeds
def test_the_projection_of_a_distribution_equals_rlax(xp: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    support = np.linspace(-5, 5, 21, dtype=np.float32)
    mass = rng.dirichlet(np.ones(21), size=8).astype(np.float32)
    places = normal(seed, 8, 1, scale=2.0) + np.float32([[0.9], [0.0]] * 4) * support
    found = np.asarray(dist.categorical_projection(xp, xp.asarray(places), mass, support))
    theirs = jax.vmap(rlax.categorical_l2_project, (0, 0, None))
    expected = theirs(jnp.array(places), jnp.array(mass), jnp.array(support))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)


def test_a_projection_keeps_the_mean_unless_it_is_cut_off() -> None:
    support = np.linspace(-1, 1, 5)
    found = dist.categorical_projection(np, np.array([[0.3], [7.0]]), np.ones((2, 1)), support)
    np.testing.assert_allclose(found @ support, [0.3, 1.0])
    np.testing.assert_allclose(found[1], [0, 0, 0, 0, 1])
