"""Layer normalisation: against its definition in float64, in NumPy, JAX and bfloat16."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exarl.errors import ConfigError
from exarl.export import Policy, evaluate
from exarl.networks.cnn import CNN
from exarl.networks.layers import ACTIVATIONS, layer_norm
from exarl.networks.mlp import MLP
from exarl.networks.precision import Reduced
from exarl.types import ArraySpec

PIXELS = ArraySpec((12, 10, 3), "uint8")
NETWORKS: dict[str, tuple[type, Any, ArraySpec]] = {
    "MLP": (MLP, (16, 8), ArraySpec((5,), "float32")),
    "CNN": (CNN, ((4, 6), (4, 3), (2, 1), (7,)), PIXELS),
}


def network(name: str, activation: str = "relu", layer_norm: bool = True, extra: int = 0) -> Any:
    kind, sizes, seen = NETWORKS[name]
    first = {"hidden": sizes} if name == "MLP" else {}
    for key, value in zip(("filters", "kernels", "strides", "hidden"), sizes, strict=False):
        first |= {key: value} if name == "CNN" else {}
    config = kind.Config(**first, activation=activation, layer_norm=layer_norm)  # type: ignore[attr-defined]
    return kind(config, seen, 3, extra)


def observations(name: str, count: int = 6) -> np.ndarray:
    seen, rng = NETWORKS[name][2], np.random.default_rng(1)
    if seen.dtype == "uint8":
        return rng.integers(0, 256, (count, *seen.shape), np.uint8)
    return rng.normal(size=(count, *seen.shape)).astype(np.float32)


def by_definition(x: np.ndarray) -> np.ndarray:
    """Every vector along the last axis on its own."""
    found = np.empty(x.shape)
    for place in np.ndindex(x.shape[:-1]):
        row = x[place].astype(float)
        found[place] = (row - row.mean()) / np.sqrt(row.var() + 1e-5)
    return found


def forward_by_definition(net: Any, params: Any, seen: np.ndarray) -> np.ndarray:
    """The network in float64, without the code of its forward pass."""
    x = seen.astype(float) / (255 if seen.dtype == np.uint8 else 1)
    for n, stride in enumerate(getattr(net.config, "strides", ())):
        w = params[f"conv{n}/w"].astype(float)
        windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[:2], (1, 2))
        x = np.einsum("nrcikl,kliO->nrcO", windows[:, ::stride, ::stride], w)
        x = np.maximum(by_definition(x + params[f"conv{n}/b"]), 0)
    x = x.reshape(len(x), -1)
    for n in range(len(net.config.hidden)):
        x = np.maximum(by_definition(x @ params[f"{n}/w"].astype(float) + params[f"{n}/b"]), 0)
    last = len(net.config.hidden)
    return x @ params[f"{last}/w"] + params[f"{last}/b"]


@pytest.mark.parametrize("shape", [(1, 2), (7, 5), (3, 4, 2, 6)])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("xp", [np, jnp])
def test_each_position_has_mean_0_and_variance_1(
    shape: tuple[int, ...], offset: float, xp: Any
) -> None:
    x = (offset + np.random.default_rng(0).normal(size=shape)).astype(np.float32)
    found = layer_norm(xp, xp.asarray(x))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_definition(x), rtol=1e-3, atol=1e-3 if offset else 1e-6)


def test_the_argument_is_left_as_it_is() -> None:
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    layer_norm(np, x)
    np.testing.assert_array_equal(x, np.arange(6).reshape(2, 3))


def test_equal_features_become_0_with_a_finite_gradient() -> None:
    x = jnp.full((2, 4), 3.0)
    np.testing.assert_array_equal(layer_norm(jnp, x), np.zeros((2, 4)))
    slope = jax.jacobian(lambda x: layer_norm(jnp, x))(x)
    assert np.isfinite(slope).all()


def test_statistics_of_bfloat16_are_float32() -> None:
    """Sums of 512 numbers near 100 would be off by whole numbers in bfloat16."""
    x = 96 + np.random.default_rng(0).integers(0, 16, (3, 512)) / 2
    found = layer_norm(jnp, jnp.asarray(x, jnp.bfloat16))  # these numbers are exact
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(found.astype(np.float32), by_definition(x), rtol=4e-3, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_whole_network_by_definition(name: str) -> None:
    net = network(name)
    params, seen = net.init(np.random.default_rng(0)), observations(name)
    expected = forward_by_definition(net, params, seen)
    np.testing.assert_allclose(net.apply(np, params, seen), expected, rtol=1e-4, atol=1e-4)
    plain = network(name, layer_norm=False).apply(np, params, seen)
    assert np.abs(plain - expected).max() > 0.05


@pytest.mark.parametrize(
    ("name", "activation", "extra"),
    [("MLP", "relu", 0), ("MLP", "tanh", 2), ("CNN", "silu", 0), ("CNN", "relu", 2)],
)
def test_numpy_equals_jax(name: str, activation: str, extra: int) -> None:
    net = network(name, activation, extra=extra)
    params, seen = net.init(np.random.default_rng(0)), observations(name)
    beside = np.random.default_rng(2).normal(size=(6, extra)).astype(np.float32) if extra else None
    ours = net.apply(np, params, seen, beside)
    theirs = jax.jit(lambda p, x, e: net.apply(jnp, p, x, e))(params, seen, beside)
    assert ours.dtype == theirs.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    wide = Reduced(net).apply(jnp, jax.tree.map(jnp.array, params), jnp.array(seen), beside)
    np.testing.assert_allclose(wide, theirs, atol=0.05)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_the_definition(name: str) -> None:
    """Against differences in float64 along random directions, of each array on its own."""
    net, rng = network(name, "tanh"), np.random.default_rng(3)
    params = {n: a.astype(float) for n, a in net.init(rng).items()}
    seen = observations(name)
    single = {n: jnp.asarray(a, jnp.float32) for n, a in params.items()}
    slopes = jax.grad(lambda p: (net.apply(jnp, p, jnp.asarray(seen)) ** 2).sum())(single)
    for array, slope in slopes.items():
        step = 1e-6 * rng.normal(size=params[array].shape)
        up, down = (
            (net.apply(np, params | {array: params[array] + sign * step}, seen) ** 2).sum()
            for sign in (1, -1)
        )
        along = float((slope * step).sum())
        assert along != 0
        assert along == pytest.approx((up - down) / 2, rel=1e-3, abs=1e-9), array


@pytest.mark.parametrize("name", NETWORKS)
def test_it_has_the_parameters_of_the_plain_network(name: str) -> None:
    ours, plain = (
        network(name, layer_norm=on).init(np.random.default_rng(0)) for on in (True, False)
    )
    assert ours.keys() == plain.keys()
    assert all(np.array_equal(ours[n], plain[n]) for n in plain)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_the_exported_layers_compute_the_same(name: str, activation: str) -> None:
    net = network(name, activation)
    params, seen = net.init(np.random.default_rng(0)), observations(name)
    policy = Policy(net.exported(params), int(np.prod(net.observation.shape)), 3)
    found = evaluate(policy, seen.reshape(len(seen), -1))
    np.testing.assert_allclose(found, net.apply(np, params, seen), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "sizes", "said"),
    [
        (MLP, {"hidden": (8, 1)}, r"hidden is \[8, 1\]"),
        (CNN, {"filters": (1, 4, 4)}, r"filters is \[1, 4, 4\]"),
        (CNN, {"hidden": (1,)}, r"hidden is \[1\]"),
    ],
)
def test_a_layer_of_one_unit_is_refused(kind: Any, sizes: dict[str, Any], said: str) -> None:
    seen = ArraySpec((84, 84), "uint8")
    kind(kind.Config(**sizes), seen, 2)
    with pytest.raises(ConfigError, match=said):
        kind(kind.Config(**sizes, layer_norm=True), seen, 2)
