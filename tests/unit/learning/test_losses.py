"""Losses and targets against RLax and optax, and NumPy against JAX."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import rlax

from exarl.learning import losses

SEEDS = range(5)


def batch(seed: int, size: int = 32, actions: int = 4) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)

    def values() -> np.ndarray:
        return rng.normal(size=(size, actions)).astype(np.float32)

    return {
        "q_tm1": values(),
        "a_tm1": rng.integers(actions, size=size),
        "r_t": rng.normal(size=size).astype(np.float32),
        "discount_t": (0.97 * (rng.random(size) > 0.2)).astype(np.float32),
        "q_t_value": values(),
        "q_t_selector": values(),
    }


def td_errors(xp: Any, b: dict[str, Any]) -> Any:
    targets = losses.q_targets(xp, b["r_t"], b["discount_t"], b["q_t_value"], b["q_t_selector"])
    return targets - losses.select(xp, b["q_tm1"], b["a_tm1"])


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
@pytest.mark.parametrize("seed", SEEDS)
def test_double_q_learning_equals_rlax(xp: Any, seed: int) -> None:
    b = batch(seed)
    expected = jax.vmap(rlax.double_q_learning)(*(jnp.array(array) for array in b.values()))
    ours = td_errors(xp, {name: xp.asarray(array) for name, array in b.items()})
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
@pytest.mark.parametrize("seed", SEEDS)
def test_q_learning_equals_rlax(xp: Any, seed: int) -> None:
    b = batch(seed)
    b["q_t_selector"] = b["q_t_value"]
    arguments = [jnp.array(b[name]) for name in ("q_tm1", "a_tm1", "r_t", "discount_t")]
    expected = jax.vmap(rlax.q_learning)(*arguments, jnp.array(b["q_t_value"]))
    ours = td_errors(xp, {name: xp.asarray(array) for name, array in b.items()})
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
def test_the_quantile_huber_loss_equals_rlax(xp: Any) -> None:
    rng = np.random.default_rng(0)
    quantiles, targets = (rng.normal(size=(32, n)).astype(np.float32) for n in (5, 7))
    levels = jnp.tile((jnp.arange(5) + 0.5) / 5, (32, 1))
    one = partial(rlax.quantile_regression_loss, huber_param=1.0)
    expected = jax.vmap(one)(jnp.array(quantiles), levels, jnp.array(targets))
    ours = losses.quantile_huber(xp, xp.asarray(quantiles), xp.asarray(targets))
    np.testing.assert_allclose(ours, expected, rtol=1e-5)


def test_a_discount_of_zero_ignores_the_next_value() -> None:
    big = np.full((1, 2), 1e30, np.float32)
    target = losses.q_targets(np, np.float32([3]), np.float32([0]), big, big)
    np.testing.assert_array_equal(target, [3])


@pytest.mark.parametrize("delta", [0.25, 1.0, 3.0])
def test_huber_equals_rlax_and_optax(delta: float) -> None:
    errors = np.concatenate([np.linspace(-6, 6, 97), [0, delta, -delta]]).astype(np.float32)
    ours = losses.huber(np, errors, delta)
    np.testing.assert_allclose(ours, rlax.huber_loss(jnp.array(errors), delta), rtol=1e-5)
    np.testing.assert_allclose(ours, optax.losses.huber_loss(errors, delta=delta), rtol=1e-5)
    np.testing.assert_allclose(losses.huber(jnp, jnp.array(errors), delta), ours, rtol=1e-6)


def test_huber_has_the_slope_of_a_clipped_error() -> None:
    errors = jnp.linspace(-4, 4, 33)
    slope = jax.vmap(jax.grad(lambda e: losses.huber(jnp, e, 1.0)))(errors)
    np.testing.assert_allclose(slope, np.clip(errors, -1, 1), atol=1e-6)


def test_squared_is_half_the_square() -> None:
    errors = np.float32([-3, 0, 0.5])
    np.testing.assert_allclose(losses.squared(np, errors), [4.5, 0, 0.125])
    np.testing.assert_allclose(losses.squared(np, errors), rlax.l2_loss(jnp.array(errors)))


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
def test_select_takes_the_chosen_column(xp: Any) -> None:
    rng = np.random.default_rng(1)
    values, actions = rng.normal(size=(50, 7)), rng.integers(7, size=50)
    chosen = losses.select(xp, xp.asarray(values), xp.asarray(actions))
    np.testing.assert_allclose(chosen, values[np.arange(50), actions], rtol=1e-6)


def test_select_passes_the_gradient_to_the_chosen_column_only() -> None:
    actions = jnp.array([2, 0])
    slope = jax.grad(lambda v: losses.select(jnp, v, actions).sum())(jnp.ones((2, 3)))
    np.testing.assert_array_equal(slope, [[0, 0, 1], [1, 0, 0]])


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
def test_dueling_by_hand(xp: Any) -> None:
    outputs = xp.asarray([[10.0, 1, 2, 6], [-1, 0, 0, 3]])
    np.testing.assert_allclose(losses.dueling(xp, outputs), [[8, 9, 13], [-2, -2, 1]], rtol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_dueling_values_average_to_the_state_value(seed: int) -> None:
    outputs = np.random.default_rng(seed).normal(size=(9, 6))
    values = losses.dueling(np, outputs)
    np.testing.assert_allclose(values.mean(-1), outputs[:, 0])
    np.testing.assert_array_equal(values.argmax(-1), outputs[:, 1:].argmax(-1))
