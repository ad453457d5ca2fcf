"""Batch normalisation: against Flax and its definition, in NumPy, JAX, bfloat16 and as exported."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exarl.errors import ConfigError
from exarl.export import Policy, evaluate
from exarl.networks import batch_norm
from exarl.networks.mlp import MLP, MLPConfig
from exarl.networks.network import RUNNING
from exarl.networks.precision import Reduced
from exarl.types import ArraySpec

SEEN = ArraySpec((5,), "float32")
places = pytest.mark.parametrize("place", ["before", "after"])


def network(place: Any, hidden: tuple[int, ...] = (16, 8), extra: int = 0) -> MLP:
    return MLP(MLPConfig(hidden, batch_norm=place), SEEN, 3, extra)


def moved(net: Any, seed: int = 0, batches: int = 20) -> Any:
    """Parameters of which none has its first value, with moments that follow some batches."""
    rng = np.random.default_rng(seed)
    params = net.init(rng)
    for name in params:
        if name.startswith("batch_norm"):
            params[name] = (params[name] + 0.3 * rng.normal(size=params[name].shape)).astype("f4")
    for _ in range(batches):
        params |= net.learn(np, params, batch(rng.integers(100)))[1]
    return params


def batch(seed: int, count: int = 12) -> np.ndarray:
    return (2 + 3 * np.random.default_rng(seed).normal(size=(count, 5))).astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_one_place_equals_flax(seed: int) -> None:
    x = jnp.asarray(batch(seed))
    theirs = nn.BatchNorm(use_running_average=False, momentum=0.99, epsilon=1e-3)
    variables = theirs.init(jax.random.key(0), x)
    expected, after = theirs.apply(variables, x, mutable=["batch_stats"])
    params = batch_norm.first([5])
    for xp in (np, jnp):
        made, running = batch_norm.by_batch(xp, params, 0, xp.asarray(x), False)
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)
        for name in ("mean", "var"):
            ours = running[f"{RUNNING}0/{name}"]
            np.testing.assert_allclose(ours, after["batch_stats"][name], rtol=1e-5, atol=1e-6)


def test_the_running_moments_come_to_those_of_the_data() -> None:
    params = batch_norm.first([5])
    for seed in range(1000):
        params |= batch_norm.by_batch(np, params, 0, batch(seed), False)[1]
    np.testing.assert_allclose(params["running/0/mean"], 2, atol=0.5)
    np.testing.assert_allclose(params["running/0/var"], 9 * 11 / 12, rtol=0.2)


def test_renormalised_is_by_the_running_moments_within_limits() -> None:
    params = batch_norm.first([5])
    params["running/0/mean"] += np.float32([2, 1, 3, 2, 100])
    params["running/0/var"] *= np.float32([9, 5, 16, 1e4, 9])
    x = batch(1)
    made, _ = batch_norm.by_batch(np, params, 0, x, True)
    plain, _ = batch_norm.by_batch(np, params, 0, x, False)
    exact = batch_norm.by_running(np, params, 0, x)
    np.testing.assert_allclose(made[:, :3], exact[:, :3], rtol=1e-4, atol=1e-4)
    std = np.sqrt(x.var(0) + 1e-3)
    np.testing.assert_allclose(  # the deviation is cut off, or the mean
        made[:, 3], plain[:, 3] / 3 + (x.mean(0)[3] - 2) / np.sqrt(1e4 + 1e-3), rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(
        made[:, 4], plain[:, 4] * std[4] / np.sqrt(9 + 1e-3) - 5, rtol=1e-3, atol=1e-3
    )


def test_corrections_are_constants_to_the_gradient() -> None:
    params, x = {**batch_norm.first([5]), "running/0/mean": np.full(5, 1, "f4")}, batch(3)
    std, ratio = np.sqrt(x.var(0) + 1e-3), 3.0

    def total(x: Any, renormalise: bool) -> Any:
        made, _ = batch_norm.by_batch(jnp, params, 0, x, renormalise)
        return (made**3).sum()

    def expected(x: Any) -> Any:  # with numbers in the place of corrections
        plain, _ = batch_norm.by_batch(jnp, params, 0, x, False)
        limited = np.clip(std / np.sqrt(1 + 1e-3), 1 / ratio, ratio)
        shift = np.clip((batch(3).mean(0) - 1) / np.sqrt(1 + 1e-3), -5, 5)
        return ((plain * limited + shift) ** 3).sum()

    np.testing.assert_allclose(
        jax.grad(total)(jnp.asarray(x), True),
        jax.grad(expected)(jnp.asarray(x)),
        rtol=1e-3,
        atol=1e-2,
    )


@places
def test_numpy_equals_jax_and_bfloat16_is_near(place: str) -> None:
    net, seen, extra = network(place, extra=2), batch(7), batch(8)[:, :2]
    params = net.init(np.random.default_rng(1))
    for seed in range(20):
        params |= net.learn(np, params, batch(seed), batch(seed + 20)[:, :2])[1]
    for call in ("apply", "learn"):
        ours = getattr(net, call)(np, params, seen, extra)
        theirs = getattr(net, call)(jnp, params, jnp.asarray(seen), jnp.asarray(extra))
        near = getattr(Reduced(net), call)(jnp, params, jnp.asarray(seen), jnp.asarray(extra))
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), ours, theirs
        )
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0.1, atol=0.1), ours, near)
        assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(near))


@places
def test_acting_is_learning_when_the_running_moments_are_the_batch(place: str) -> None:
    net, seen = network(place), batch(7, 64)
    params = moved(net)
    for _ in range(2000):
        params |= net.learn(np, params, seen)[1]
    learned, _ = net.learn(np, params, seen)
    np.testing.assert_allclose(net.apply(np, params, seen), learned, rtol=1e-3, atol=1e-3)
    assert np.abs(net.apply(np, moved(net), seen) - learned).max() > 0.1


@places
@pytest.mark.parametrize("hidden", [(), (7,), (16, 8)])
def test_exported_constants_do_what_the_running_moments_do(
    place: str, hidden: tuple[int, ...]
) -> None:
    net, seen = network(place, hidden), batch(2)
    params = moved(net)
    found = evaluate(Policy(net.exported(params), 5, 3), seen)
    np.testing.assert_allclose(found, net.apply(np, params, seen), rtol=1e-4, atol=1e-4)


def test_one_kind_of_normalisation_at_a_time() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        MLP(MLPConfig((8,), layer_norm=True, batch_norm="after"), SEEN, 3)
