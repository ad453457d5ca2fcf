"""The learning half's tools: optimisers, clipping, trees as named arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import optax
import pytest
from support.learning import assert_same_arrays

from exarl.agents import compiled
from exarl.agents.compiled import jax, jnp


def tree(seed: int, scale: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = {"w": (4, 3), "b": (3,), "s": ()}
    return {name: jnp.array(scale * rng.normal(size=shape)) for name, shape in shapes.items()}


@pytest.mark.parametrize("limit", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 1e4])
def test_clipping_equals_optax(limit: float, scale: float) -> None:
    gradient = tree(1, scale)
    ours, theirs = compiled.clip_by_global_norm(limit), optax.clip_by_global_norm(limit)
    got, _ = ours.update(gradient, ours.init(gradient))
    expected, _ = theirs.update(gradient, theirs.init(gradient))
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5)


@pytest.mark.parametrize("name", compiled.OPTIMIZERS)
def test_every_optimiser_descends_and_its_state_can_be_stored(name: str) -> None:
    optimiser = compiled.optimizer(name, 0.02, 1.0)
    params = tree(2)
    state = optimiser.init(params)
    size = float(optax.global_norm(params))
    for _ in range(3):
        gradient = jax.tree.map(lambda leaf: 2 * leaf, params)  # of the sum of squares
        step, state = optimiser.update(gradient, state, params)
        params = optax.apply_updates(params, step)
    assert float(optax.global_norm(params)) < size
    arrays = compiled.to_arrays(state, "opt")
    back = compiled.from_arrays(optimiser.init(params), arrays, "opt")
    assert_same_arrays(compiled.to_arrays(back, "opt"), arrays)


def test_updates_run_in_order_and_their_metrics_are_averaged_or_stacked() -> None:
    plan = compiled.Plan(
        gradient=lambda state, batch: (batch["x"], {"seen": batch["x"], "both": batch["y"]}),
        apply=lambda state, slope: 2 * state + slope,
    )
    update = compiled.learner(plan, None)
    inputs = {"x": jnp.arange(4.0), "y": jnp.arange(8.0).reshape(4, 2)}
    state, metrics = update(jnp.float32(1), inputs, 4)
    assert float(state) == 16 + 0 * 8 + 1 * 4 + 2 * 2 + 3
    assert float(metrics["seen"]) == 1.5
    np.testing.assert_array_equal(metrics["both"], inputs["y"])


def test_the_data_of_a_block_are_prepared_once_with_the_state_before_its_updates() -> None:
    plan = compiled.Plan(
        gradient=lambda state, batch: (batch, {}),
        apply=lambda state, slope: state + slope,
        prepare=lambda state, inputs: inputs * state,
        pick=lambda data, i: data[i],
    )
    state, _ = compiled.learner(plan, None)(jnp.float32(2), jnp.array([1.0, 10.0]), 2)
    assert float(state) == 2 + 2 * 1 + 2 * 10


def test_device_arrays_do_not_share_numpys_memory() -> None:
    array = np.arange(1024, dtype=np.float32)
    on_device = compiled.to_device({"a": array})
    array[:] = -1
    np.testing.assert_array_equal(on_device["a"], np.arange(1024))


@pytest.mark.parametrize("change", ["shape", "missing"])
def test_arrays_that_do_not_fit_the_tree_are_refused(change: str) -> None:
    like = tree(0)
    arrays = compiled.to_arrays(like, "p")
    if change == "shape":
        arrays["p/0"] = np.zeros(9)
    else:
        del arrays["p/2"]
    with pytest.raises(ValueError):
        compiled.from_arrays(like, arrays, "p")


@pytest.mark.parametrize("name", ["adamw", "lion"])
def test_weight_decay_is_for_matrices(name: str) -> None:
    optimiser = compiled.optimizer(name, 0.1, None)
    params = tree(3)
    nothing = jax.tree.map(jnp.zeros_like, params)
    step, _ = optimiser.update(nothing, optimiser.init(params), params)
    assert np.abs(step["w"]).max() > 0
    assert not np.any(step["b"]) and not np.any(step["s"])


class Echo:
    """A team of two whose other learner sends back what it is sent."""

    size, index = 2, 0

    def __init__(self, every: int) -> None:
        self.every = every

    def average(self, vector: np.ndarray, weight: float) -> np.ndarray:
        return vector


@pytest.mark.parametrize("team", [None, Echo(1), Echo(2)], ids=["alone", "slopes", "states"])
def test_compiling_is_noticed_when_it_happens_and_only_then(team: Any) -> None:
    happened: list[str] = []

    @contextmanager
    def compiling() -> Iterator[None]:
        happened.append("begins")
        yield
        happened.append("ends")

    def gradient(state: Any, batch: Any) -> tuple[Any, Any]:
        happened.append("traced")
        return {"x": batch["x"].sum()}, {"seen": batch["x"].sum()}

    plan = compiled.Plan(
        gradient,
        apply=lambda state, slope: {"x": state["x"] + slope["x"]},
        slope=lambda state: state,
    )
    update = compiled.learner(plan, team, compiling=compiling)

    def call(width: int) -> list[str]:
        happened.clear()
        state, _ = update({"x": jnp.float32(1)}, {"x": jnp.ones((2, width))}, 2)
        assert float(state["x"]) == 1 + 2 * width
        return list(dict.fromkeys(happened))  # JAX may trace a function more than once

    assert call(3) == ["begins", "traced", "ends"]
    assert happened.count("begins") == happened.count("ends") == 1
    assert call(3) == []
    assert call(5) == ["begins", "traced", "ends"], "another shape is another program"
    assert call(3) == call(5) == []
