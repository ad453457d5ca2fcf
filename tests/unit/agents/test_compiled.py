"""The learning half's tools: optimisers, clipping, trees as named arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import optax
import pytest
from support.learning import assert_same_arrays, discrete_spec

from exarl.agents import compiled
from exarl.agents.algorithm import Algorithm, AlgorithmConfig, Hyper, Loss, TrainState, hyper_of
from exarl.agents.compiled import jax, jnp
from exarl.agents.engine import Engine
from exarl.agents.updates import compile_updates


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


@dataclass(frozen=True)
class Toy(Algorithm[AlgorithmConfig]):
    """Plain descent by 1 on a loss whose slope is minus the batch's ``x``."""

    uses_replay = True
    scales: bool = False

    def act(self, *_: Any) -> Any:
        raise NotImplementedError

    def n_updates(self, steps: int, made: int) -> int:
        return 1

    def rows(self, *_: Any) -> Any:
        return {}

    @property
    def losses(self) -> tuple[Loss, ...]:
        return (Loss(("x",), self.loss, ("seen",), "all"),)

    def loss(self, xp: Any, hyper: Any, params: Any, state: Any, batch: Any) -> tuple[Any, Any]:
        value = -params["x"] * batch["x"].sum() - state.params["x"] * params["x"] * self.doubles
        return value, {"seen": batch["x"].sum(), "both": batch["y"]}

    doubles: int = 0

    def prepare(self, xp: Any, hyper: Any, state: Any, rows: Any) -> Any:
        return {**rows, "x": rows["x"] * state.params["x"]} if self.scales else rows


def toy(**options: Any) -> tuple[Engine, Hyper, TrainState]:
    """Its engine, its parameters, and the state that begins with ``x`` = 1 (or 2)."""
    config = AlgorithmConfig(optimizer="sgd", learning_rate=1.0, max_grad_norm=None)
    engine = Engine(Toy(discrete_spec(), config, {}, **options))
    hyper = hyper_of(config)
    first = 2.0 if options.get("scales") else 1.0
    return engine, hyper, compiled.to_device(engine.init(hyper, {"x": np.float32(first)}, {}))


def updating(engine: Engine, hyper: Hyper, team: Any = None, compiling: Any = nullcontext) -> Any:
    observer = compiled.CompileObserver(compiling)
    return compile_updates(engine, hyper, team, lambda state: [state.params["x"]], observer)


def test_updates_run_in_order_and_their_metrics_are_averaged_or_stacked() -> None:
    engine, hyper, state = toy(doubles=1)
    inputs = {"x": jnp.arange(4.0), "y": jnp.arange(8.0).reshape(4, 2)}
    state, metrics = updating(engine, hyper)(state, inputs, 4)
    assert float(state.params["x"]) == 16 + 0 * 8 + 1 * 4 + 2 * 2 + 3
    assert float(metrics["seen"]) == 1.5
    np.testing.assert_array_equal(metrics["both"], inputs["y"])
    np.testing.assert_array_equal(metrics["weights"], [27.0])


def test_the_data_of_a_block_are_prepared_once_with_the_state_before_its_updates() -> None:
    engine, hyper, state = toy(scales=True)
    inputs = {"x": jnp.array([1.0, 10.0]), "y": jnp.zeros(2)}
    state, _ = updating(engine, hyper)(state, inputs, 2)
    assert float(state.params["x"]) == 2 + 2 * 1 + 2 * 10


def test_device_arrays_do_not_share_numpys_memory() -> None:
    array = np.arange(1024, dtype=np.float32)
    on_device = compiled.to_device({"a": array})
    array[:] = -1
    np.testing.assert_array_equal(on_device["a"], np.arange(1024))


@pytest.mark.parametrize("change", ["shape", "missing", "unknown"])
def test_arrays_that_do_not_fit_the_tree_are_refused(change: str) -> None:
    like = tree(0)
    arrays = compiled.to_arrays(like, "p")
    if change == "shape":
        arrays["p/b"] = np.zeros(9)
    elif change == "missing":
        del arrays["p/b"]
    else:
        arrays["p/x"] = np.zeros(9)
    with pytest.raises(ValueError, match="p/x" if change == "unknown" else "p/b"):
        compiled.from_arrays(like, arrays, "p")


def test_arrays_are_named_by_where_they_stand() -> None:
    optimiser = compiled.optimizer("adam", 0.1, 1.0)
    state = {"params": {"q/0/w": jnp.ones(2)}, "optimizer": {"q": optimiser.init({"q/0/w": 1.0})}}
    assert set(compiled.to_arrays(state)) == {
        "params/q/0/w",
        "optimizer/q/adam/count",
        "optimizer/q/adam/mu/q/0/w",
        "optimizer/q/adam/nu/q/0/w",
    }


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


@pytest.mark.parametrize("team", [None, Echo(1), Echo(2)], ids=["alone", "grads", "states"])
def test_compiling_is_noticed_when_it_happens_and_only_then(
    team: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []

    @contextmanager
    def compiling() -> Iterator[None]:
        happened.append("begins")
        yield
        happened.append("ends")

    engine, hyper, _ = toy()
    loss = Toy.loss

    def traced(*arguments: Any) -> Any:
        happened.append("traced")
        return loss(*arguments)

    monkeypatch.setattr(Toy, "loss", traced)
    update = updating(engine, hyper, team, compiling)

    def call(width: int) -> list[str]:
        first = toy()[2]
        happened.clear()
        state, _ = update(first, {"x": jnp.ones((2, width)), "y": jnp.zeros(2)}, 2)
        assert float(state.params["x"]) == 1 + 2 * width
        return list(dict.fromkeys(happened))  # JAX may trace a function more than once

    assert call(3) == ["begins", "traced", "ends"]
    assert happened.count("begins") == happened.count("ends") == 1
    assert call(3) == []
    assert call(5) == ["begins", "traced", "ends"], "another shape is another program"
    assert call(3) == call(5) == []


@pytest.mark.parametrize("count", [8, 1024, 1031])
def test_orders_are_permutations_that_differ_from_pass_to_pass(count: int) -> None:
    drawn = np.asarray(jax.jit(lambda key: compiled.orders(key, 3, count))(jax.random.key(1)))
    again = np.asarray(jax.jit(lambda key: compiled.orders(key, 3, count))(jax.random.key(2)))
    assert (np.sort(drawn) == np.arange(count)).all()
    assert len(np.unique(np.concatenate([drawn, again]), axis=0)) == 6


def test_orders_of_many_rows_are_drawn_without_sorting() -> None:
    """Sorting the rows of 131,072 environments in each pass takes longer than learning from them."""
    program = jax.jit(lambda key: compiled.orders(key, 4, 2**17)).lower(jax.random.key(0))
    assert "sort" not in program.as_text()
    few = jax.jit(lambda key: compiled.orders(key, 4, 512)).lower(jax.random.key(0))
    assert "sort" in few.as_text()
