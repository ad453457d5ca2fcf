"""Learning a model of an environment from transitions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exarl.agents.world_model import GROUP, ModelState, WorldModel, held_out
from exarl.networks.dynamics import Dynamics, Scales
from exarl.types import Arrays

SIZE, ROWS = 3, 2000
MODEL = WorldModel(Dynamics(SIZE, 1, 4, (32,)), elites=2, batch_size=64, learning_rate=3e-3)


def linear(seed: int, count: int = ROWS, noise: float = 0.0) -> Arrays:
    """Steps of x' = A x + b u, whose reward is w x, and which end where the first number is over 1."""
    rng = np.random.default_rng(seed)
    a = np.array([[0.9, 0.2, 0.0], [-0.2, 0.9, 0.1], [0.0, 0.1, 0.8]])
    x, u = rng.normal(size=(count, SIZE)), rng.uniform(-1, 1, (count, 1))
    following = x @ a.T + u * [0.0, 0.5, 1.0] + noise * rng.normal(size=x.shape)
    rows = {
        "observation": x,
        "action": u,
        "reward": x @ [1.0, -2.0, 0.5],
        "discount": np.where(following[:, 0] > 1, 0.0, 1.0),
        "next_observation": following,
    }
    return {name: array.astype(np.float32) for name, array in rows.items()}


@jax.jit
def _learn_on(state: ModelState, rows: Arrays, size: int) -> ModelState:
    return MODEL.trained(state, rows, size, jax.random.key(1), 600)[0]


def learned(rows: Arrays) -> ModelState:
    return _learn_on(MODEL.seen(MODEL.init(np.random.default_rng(0)), rows), rows, ROWS)


@pytest.fixture(scope="module")
def state() -> ModelState:
    return learned(linear(0))


def test_an_ensemble_learns_a_linear_system(state: ModelState) -> None:
    fresh = linear(7, 512)
    inputs, targets, ended = MODEL.given(fresh)
    scaling = MODEL.scaling(state)
    found = MODEL.compared(state.params, scaling, inputs, targets, np.True_)
    assert bool(found.useful)
    assert found.error < 0.02 * found.persistence
    assert found.reward_error < 0.02
    ends = MODEL.dynamics.apply(np, state.params, scaling, np.asarray(inputs)).ends.mean(0) > 0
    assert (ends == np.asarray(ended)).mean() > 0.97
    assert 0.05 < np.mean(ended) < 0.3


def test_the_variance_is_that_of_the_noise() -> None:
    rows = linear(0, noise=0.3)
    state = learned(rows)
    scaling = MODEL.scaling(state)
    inputs = np.asarray(MODEL.given(linear(7, 512))[0])
    log_var = MODEL.dynamics.apply(np, state.params, scaling, inputs).log_var[..., :SIZE]
    predicted = np.exp(log_var / 2).mean((0, 1)) * scaling.out_std[:SIZE]
    np.testing.assert_allclose(predicted, 0.3, rtol=0.15)


def test_held_out_rows_are_never_learned_from(state: ModelState) -> None:
    """One row of every ten, also of those that are replaced later."""
    rows = linear(0)
    places = np.asarray(held_out(np.arange(ROWS // GROUP)))
    assert (places // GROUP == np.arange(ROWS // GROUP)).all()
    assert len(set((places % GROUP).tolist())) == GROUP
    spoilt = {**rows, "reward": rows["reward"].copy()}
    spoilt["reward"][places] = 1e6
    moments = MODEL.seen(MODEL.init(np.random.default_rng(0)), rows)

    def params(rows: Arrays) -> Any:
        return _learn_on(moments, jax.tree.map(jnp.asarray, rows), ROWS).params

    for one, other in zip(*(jax.tree.leaves(params(r)) for r in (rows, spoilt)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("change", "useful"), [(0.0, False), (1.0, True), (0.4, False)])
def test_a_model_is_useful_where_it_is_better_than_that_nothing_changes(
    change: float, useful: bool
) -> None:
    """Networks that predict a change of 1 whatever they are given."""
    params = {
        name: 0 * array for name, array in MODEL.dynamics.init(np.random.default_rng(0)).items()
    }
    ones, inputs = np.ones(SIZE + 1, np.float32), np.zeros((20, SIZE + 1), np.float32)
    targets = np.full((20, SIZE + 1), change, np.float32)
    found = MODEL.compared(params, Scales(ones, ones, ones, ones), inputs, targets, np.True_)
    assert bool(found.useful) is useful
    assert float(found.error) == pytest.approx((1 - change) ** 2)
    assert float(found.persistence) == pytest.approx(change**2)
    none = MODEL.compared(params, Scales(ones, ones, ones, ones), inputs, targets, np.False_)
    assert not bool(none.useful)


def test_a_model_without_held_out_rows_is_not_useful(state: ModelState) -> None:
    rows = linear(0)
    few, many = (MODEL.assess(state, rows, size, jax.random.key(0)) for size in (GROUP - 1, ROWS))
    assert not bool(few.useful) and bool(many.useful)
