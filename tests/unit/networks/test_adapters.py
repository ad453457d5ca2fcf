"""Networks of Flax and Equinox: their parameters as named arrays, their outputs unchanged.

The stand-ins have the few methods the adapters use; the real packages are tested where installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exarl
from exarl import registry
from exarl.errors import ConfigError
from exarl.networks.adapters import Adapted, from_equinox, from_flax
from exarl.types import ArraySpec

SPEC = ArraySpec((4,), "float32")


@dataclass(frozen=True)
class LikeFlax:
    """``init`` and ``apply`` of a linen module: one hidden layer."""

    outputs: int
    statistics: bool = False

    def init(self, key: Any, *inputs: Any) -> Any:
        size = sum(x.shape[1] for x in inputs)
        first, second = jax.random.split(key)
        params = {
            "Dense_0": {"kernel": jax.random.normal(first, (size, 8)), "bias": jnp.ones(8)},
            "Dense_1": {"kernel": jax.random.normal(second, (8, self.outputs))},
        }
        return {"params": params} | ({"batch_stats": {}} if self.statistics else {})

    def apply(self, variables: Any, *inputs: Any) -> Any:
        p = variables["params"]
        x = jnp.concatenate(inputs, 1) @ p["Dense_0"]["kernel"] + p["Dense_0"]["bias"]
        return jnp.tanh(x) @ p["Dense_1"]["kernel"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LikeEquinox:
    """A callable tree whose leaves are weights, a constant and a function."""

    layers: list[Any]
    order: Any
    activation: Any

    def __call__(self, observation: Any, *extra: Any) -> Any:
        assert observation.ndim == 1, "one observation at a time"
        x = jnp.concatenate([observation, *extra])[self.order]
        return self.activation(x @ self.layers[0]) @ self.layers[1]


def like_equinox(key: Any, observation: ArraySpec, outputs: int, extra: int = 0) -> LikeEquinox:
    first, second = jax.random.split(key)
    size = observation.shape[0] + extra
    weights = [jax.random.normal(first, (size, 8)), jax.random.normal(second, (8, outputs))]
    return LikeEquinox(weights, jnp.arange(size)[::-1], jnp.tanh)


def flax_module(outputs: int) -> Any:
    nn = pytest.importorskip("flax.linen")

    class Module(nn.Module):  # type: ignore[misc, name-defined]
        @nn.compact
        def __call__(self, *inputs: Any) -> Any:
            return nn.Dense(outputs)(nn.tanh(nn.Dense(8)(jnp.concatenate(inputs, 1))))

    return Module()


def equinox_module(key: Any, observation: ArraySpec, outputs: int, extra: int = 0) -> Any:
    eqx = pytest.importorskip("equinox")

    class Module(eqx.Module):  # type: ignore[misc, name-defined]
        inner: Any

        def __call__(self, *inputs: Any) -> Any:
            return self.inner(jnp.concatenate(inputs))

    return Module(eqx.nn.MLP(observation.shape[0] + extra, outputs, 8, 2, key=key))


KINDS = {
    "like flax": from_flax(LikeFlax),
    "like equinox": from_equinox(like_equinox),
    "flax": from_flax(flax_module),
    "equinox": from_equinox(equinox_module),
}


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> type[Adapted]:
    return KINDS[request.param]


@pytest.mark.parametrize("extra", [0, 2])
def test_a_network_as_any_other(kind: type[Adapted], extra: int) -> None:
    net = kind(None, SPEC, 3, extra)
    params = net.init(np.random.default_rng(0))
    assert all(type(a) is np.ndarray and a.dtype == np.float32 for a in params.values())
    rng = np.random.default_rng(1)
    seen = rng.normal(size=(5, 4)).astype(np.float32)
    beside = rng.normal(size=(5, extra)).astype(np.float32) if extra else None
    inputs = (seen,) if beside is None else (seen, beside)
    ours = net.apply(np, params, seen, beside)
    assert type(ours) is np.ndarray
    assert ours.shape == (5, 3)
    assert ours.dtype == np.float32
    # A fresh tree from the key that init drew gives the same, untouched by any renaming.
    tree = net.tree(jax.random.key(int(np.random.default_rng(0).integers(2**32))))
    np.testing.assert_allclose(ours, net.call(tree, *inputs), rtol=1e-5, atol=1e-5)
    theirs = jax.jit(lambda p: net.apply(jnp, p, seen, beside))(params)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert net.memory == {}


def test_every_parameter_has_a_gradient_and_others_are_ignored(kind: type[Adapted]) -> None:
    net = kind(None, SPEC, 3)
    params = net.init(np.random.default_rng(0))
    seen = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    slope = jax.grad(lambda p: (net.apply(jnp, p, seen) ** 2).sum())(params)
    assert all(np.abs(slope[name]).max() > 0 for name in params)
    more = {**params, "epsilon": np.float32(0.1)}  # agents keep numbers of their own beside
    np.testing.assert_array_equal(net.apply(np, more, seen), net.apply(np, params, seen))


def test_seeds_and_names(kind: type[Adapted]) -> None:
    net = kind(None, SPEC, 3)
    one, same, other = (net.init(np.random.default_rng(seed)) for seed in (0, 0, 1))
    for name, array in one.items():
        np.testing.assert_array_equal(array, same[name])
    assert any(not np.array_equal(array, other[name]) for name, array in one.items())


def test_names_are_paths() -> None:
    flax = KINDS["like flax"](None, SPEC, 3).init(np.random.default_rng(0))
    assert set(flax) == {
        "params/Dense_0/kernel", "params/Dense_0/bias", "params/Dense_1/kernel"
    }  # fmt: skip
    equinox = KINDS["like equinox"](None, SPEC, 3).init(np.random.default_rng(0))
    assert set(equinox) == {"layers/0", "layers/1"}


def test_state_beside_the_parameters_is_refused() -> None:
    net = from_flax(lambda outputs: LikeFlax(outputs, statistics=True))(None, SPEC, 3)
    with pytest.raises(ConfigError, match="batch_stats"):
        net.init(np.random.default_rng(0))


def test_an_agent_learns_with_it(
    kind: type[Adapted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind(None, SPEC, 2).init(np.random.default_rng(0))  # skips here without its package
    monkeypatch.setitem(registry.networks._entries, "Adapted-v0", kind)
    result = exarl.train(
        model_type="Adapted-v0",
        total_steps=320,
        learning_starts=64,
        output_dir=str(tmp_path),
        progress=False,
    )
    assert result.summary["updates_total"] > 0
