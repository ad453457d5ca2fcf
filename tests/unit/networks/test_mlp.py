"""The multilayer perceptron: one forward pass, the same in NumPy and JAX."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exarl.networks.mlp import ACTIVATIONS, MLP, MLPConfig
from exarl.types import ArraySpec


def network(
    hidden: tuple[int, ...] = (16, 8),
    activation: Any = "relu",
    shape: tuple[int, ...] = (5,),
    dtype: str = "float32",
) -> MLP:
    return MLP(MLPConfig(hidden, activation), ArraySpec(shape, dtype), 3)


def observations(seed: int, shape: tuple[int, ...], dtype: str, count: int = 7) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=(count, *shape)) * 40
    return np.abs(values).astype(dtype) if dtype == "uint8" else (values / 40).astype(dtype)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("hidden", [(), (16,), (32, 8, 4)])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((5,), "float32"), ((2, 3), "float64"), ((), "float32"), ((4,), "uint8")]
)
def test_numpy_equals_jax(
    activation: str, hidden: tuple[int, ...], shape: tuple[int, ...], dtype: str
) -> None:
    net = network(hidden, activation, shape, dtype)
    params = net.init(np.random.default_rng(1))
    seen = observations(2, shape, dtype)
    ours = net.apply(np, params, seen)
    theirs = net.apply(jnp, jax.tree.map(jnp.array, params), jnp.array(seen, np.float32))
    assert ours.shape == (7, 3)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_relu_network_by_hand(seed: int) -> None:
    net = network((6,))
    params = net.init(np.random.default_rng(seed))
    seen = observations(seed, (5,), "float32")
    hidden = np.maximum(seen.astype(float) @ params["0/w"] + params["0/b"], 0)
    expected = hidden @ params["1/w"] + params["1/b"]
    np.testing.assert_allclose(net.apply(np, params, seen), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "oracle"), [("tanh", jnp.tanh), ("silu", jax.nn.silu)])
def test_activations_equal_jax(name: str, oracle: Any) -> None:
    x = np.linspace(-20, 20, 401, dtype=np.float32)
    np.testing.assert_allclose(ACTIVATIONS[name](np, x), oracle(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_bear_large_numbers(name: str) -> None:
    """No overflow in NumPy (a warning would fail the test), no NaN in the gradient."""
    x = np.float32([-1e4, -200, -90, 90, 200, 1e4])
    assert np.isfinite(ACTIVATIONS[name](np, x)).all()
    slope = jax.grad(lambda v: ACTIVATIONS[name](jnp, v).sum())(jnp.array(x))
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("seed", range(3))
def test_initial_values_are_bounded_by_the_fan_in_and_use_the_range(seed: int) -> None:
    net = network((64, 256), shape=(3, 4))
    params = net.init(np.random.default_rng(seed))
    fan_in = {"0": 12, "1": 64, "2": 256}
    for name, array in params.items():
        bound = 1 / math.sqrt(fan_in[name[0]])
        assert array.dtype == np.float32
        assert np.abs(array).max() <= bound * (1 + 1e-6)
        if array.size > 100:
            assert np.abs(array).max() > 0.9 * bound
            assert abs(array.mean()) < 4 * bound / math.sqrt(3 * array.size)
    assert {name: array.shape for name, array in params.items()} == {
        "0/w": (12, 64), "0/b": (64,), "1/w": (64, 256), "1/b": (256,), "2/w": (256, 3), "2/b": (3,)
    }  # fmt: skip


def test_same_seed_same_network_other_seed_another() -> None:
    one, same, other = (network().init(np.random.default_rng(seed)) for seed in (0, 0, 1))
    for name, array in one.items():
        np.testing.assert_array_equal(array, same[name])
        assert not np.array_equal(array, other[name])
