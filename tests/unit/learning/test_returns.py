"""n-step returns against RLax, cases by hand, and NumPy against JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from exarl.learning.returns import n_step_returns

GAMMA = 0.9


def flags(*rows: list[int]) -> np.ndarray:
    """[T, B] booleans from one list an environment."""
    return np.array(rows, bool).T


def rewards(*rows: list[float]) -> np.ndarray:
    return np.array(rows, np.float32).T


def random_block(seed: int, steps: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    terminated = rng.random((steps, width)) < 0.15
    truncated = (rng.random((steps, width)) < 0.15) & ~terminated
    return rng.normal(size=(steps, width)).astype(np.float32), terminated, truncated


def by_definition(
    reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, gamma: float, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each window followed step by step, in double precision."""
    steps, width = reward.shape
    returns, discounts = np.zeros((steps, width)), np.zeros((steps, width))
    last = np.zeros((steps, width), int)
    for t, b in np.ndindex(steps, width):
        for k in range(n):
            at = t + k
            returns[t, b] += gamma**k * float(reward[at, b])
            discounts[t, b], last[t, b] = gamma ** (k + 1), at
            if terminated[at, b]:
                discounts[t, b] = 0
            if terminated[at, b] or truncated[at, b] or at == steps - 1:
                break
    return returns, discounts, last


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [1, 2, 3, 5, 17])
@pytest.mark.parametrize("steps", [1, 4, 13])
def test_equals_rlax_without_truncation(seed: int, n: int, steps: int) -> None:
    reward, terminated, _ = random_block(seed, steps, 3)
    values = np.random.default_rng(seed + 100).normal(size=(steps, 3)).astype(np.float32)
    nothing = np.zeros_like(terminated)
    returns, discounts, last = n_step_returns(np, reward, terminated, nothing, GAMMA, n)
    ours = returns + discounts * np.take_along_axis(values, last, 0)
    discount_t = (GAMMA * ~terminated).astype(np.float32)
    for b in range(3):
        expected = rlax.n_step_bootstrapped_returns(
            jnp.array(reward[:, b]), jnp.array(discount_t[:, b]), jnp.array(values[:, b]), n
        )
        np.testing.assert_allclose(ours[:, b], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [1, 2, 4, 30])
@pytest.mark.parametrize("gamma", [0.0, 0.97, 1.0])
def test_equals_its_definition_with_both_endings(seed: int, n: int, gamma: float) -> None:
    block = random_block(seed, 23, 4)
    ours = n_step_returns(np, *block, gamma, n)
    for got, expected in zip(ours, by_definition(*block, gamma, n), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_truncation_bootstraps_and_termination_does_not() -> None:
    reward = rewards([1, 2, 4, 8], [1, 2, 4, 8])
    terminated = flags([0, 1, 0, 0], [0, 0, 0, 0])
    truncated = flags([0, 0, 0, 0], [0, 1, 0, 0])
    returns, discounts, last = n_step_returns(np, reward, terminated, truncated, 0.5, 3)
    both = [1 + 0.5 * 2, 2, 4 + 0.5 * 8, 8]
    np.testing.assert_allclose(returns.T, [both, both])
    np.testing.assert_allclose(discounts.T, [[0, 0, 0.25, 0.5], [0.25, 0.5, 0.25, 0.5]])
    np.testing.assert_array_equal(last.T, [[1, 1, 3, 3]] * 2)


def test_a_step_that_both_terminates_and_truncates_has_terminated() -> None:
    end = flags([1, 0])
    _, discounts, _ = n_step_returns(np, rewards([1, 1]), end, end, 0.5, 2)
    np.testing.assert_allclose(discounts.T, [[0, 0.5]])


def test_a_window_stops_at_the_first_of_two_ends() -> None:
    truncated, terminated = flags([1, 0, 0]), flags([0, 1, 0])
    returns, discounts, last = n_step_returns(
        np, rewards([1, 10, 100]), terminated, truncated, 0.5, 3
    )
    np.testing.assert_allclose(returns.T, [[1, 10, 100]])
    np.testing.assert_allclose(discounts.T, [[0.5, 0, 0.5]])
    np.testing.assert_array_equal(last.T, [[0, 1, 2]])


@pytest.mark.parametrize("n", [1, 3, 40])
def test_numpy_jax_and_jit_agree_and_keep_float32(n: int) -> None:
    block = random_block(7, 16, 3)
    on_device = [jnp.array(array) for array in block]

    def in_jax(*arrays: Any) -> Any:
        return n_step_returns(jnp, *arrays, GAMMA, n)

    ours = n_step_returns(np, *block, GAMMA, n)
    for form in (in_jax, jax.jit(in_jax)):
        for here, there in zip(ours, form(*on_device), strict=True):
            np.testing.assert_allclose(here, there, rtol=1e-6, atol=1e-6)
            assert there.dtype.kind == here.dtype.kind
    assert ours[0].dtype == ours[1].dtype == np.float32


def test_leaves_its_inputs_alone() -> None:
    block = random_block(3, 8, 2)
    before = [array.copy() for array in block]
    n_step_returns(np, *block, GAMMA, 3)
    for array, kept in zip(block, before, strict=True):
        np.testing.assert_array_equal(array, kept)
