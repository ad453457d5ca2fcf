"""The multilayer perceptron: one forward pass, the same in NumPy and JAX."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exarl.networks.layers import ACTIVATIONS
from exarl.networks.mlp import MLP, MLPConfig
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


def test_parameters_are_those_of_the_first_version() -> None:
    """A seed gives the networks that stored results were made with."""
    params = network(shape=(2, 3)).init(np.random.default_rng(7))
    digest = hashlib.sha256(b"".join(name.encode() + a.tobytes() for name, a in params.items()))
    assert digest.hexdigest() == "fa4ed4dee21fa50e05df364720acbc811635905487da1b88b7d23973e661a78e"


@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_extra_numbers_stand_beside_the_flattened_observation(shape: tuple[int, ...]) -> None:
    net = MLP(MLPConfig((16, 8)), ArraySpec(shape, "float32"), 3, extra=2)
    params = net.init(np.random.default_rng(0))
    seen, extra = observations(1, shape, "float32"), observations(2, (2,), "float64")
    inputs = np.concatenate([seen.reshape(7, -1), extra.astype(np.float32)], 1)
    ours = net.apply(np, params, seen, extra)
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, net.apply(np, params, inputs))
    theirs = net.apply(jnp, jax.tree.map(jnp.array, params), jnp.array(seen), jnp.array(extra))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_it_has_no_memory() -> None:
    net = network()
    params = net.init(np.random.default_rng(0))
    seen = observations(1, (5,), "float32")
    assert net.memory == {}
    outputs, memory = net.step(np, params, seen, {})
    np.testing.assert_array_equal(outputs, net.apply(np, params, seen))
    assert memory == {}


@pytest.mark.parametrize("gain", [1.0, 0.01])
def test_orthogonal_layers_keep_lengths_up_to_their_gain(gain: float) -> None:
    net = MLP(MLPConfig((64, 24), init="orthogonal", output_gain=gain), ArraySpec((8,), "f4"), 3)
    params = net.init(np.random.default_rng(0))
    gains = {"0": math.sqrt(2), "1": math.sqrt(2), "2": gain}
    for name, array in params.items():
        assert array.dtype == np.float32
        if name.endswith("b"):
            assert not array.any()
            continue
        short = array if array.shape[0] <= array.shape[1] else array.T
        expected = gains[name[0]] ** 2 * np.eye(len(short))
        np.testing.assert_allclose(short @ short.T, expected, atol=1e-5)
