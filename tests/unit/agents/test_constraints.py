"""Constraints: multipliers that follow the episodes' costs, and rewards that mind their prices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from exarl.agents.constraints import COSTS, Constraints, Dual, priced_batch
from exarl.errors import CheckpointError, ConfigError

HYPER = {"constraint_rate": 0.1, "constraint_damping": 0.0}


def made(*texts: str) -> Constraints:
    return Constraints.of(SimpleNamespace(constraints=texts))


def block(*episodes: tuple[float, ...], length: int = 1) -> Any:
    """A block of one environment whose episodes of ``length`` steps cost this much, and a step of
    another."""
    sums = np.array([*episodes, (1e9,) * len(episodes[0])], np.float32)[:, None]
    ended = np.ones(sums.shape[:2], bool)
    ended[-1] = False
    return SimpleNamespace(
        recorded={COSTS: np.stack([sums, sums], 2)},
        ended=ended,
        episode_lengths=np.full(len(episodes), length),
    )


def dual(*multipliers: float, beyond: float = 0.0, length: float = 1.0) -> Dual:
    there = np.array(multipliers)
    return Dual(there, np.full(len(there), beyond), np.array(length))


def test_a_multiplier_rises_by_what_is_beyond_the_limit_and_stays_above_nothing() -> None:
    limits = made("a<=4", "b>=2", "c<0")
    sums = limits.sums_of_team(block((6, 1, 3), (8, 2, -1)), None)
    assert sums.tolist() == [2, 2, 14, 3, 2, 2, 1, 1]
    after = limits.after(np, HYPER, limits.first, sums)
    np.testing.assert_allclose(after.multipliers, [0.1 * 3 / 4, 0.1 * 0.5 / 2, 0.1 * 1 / 1])
    few = limits.sums_of_team(block((0, 9, 0)), None)
    lower = limits.after(np, HYPER, after, few).multipliers
    np.testing.assert_allclose(lower, [0, 0, after.multipliers[2]])
    none = limits.after(np, HYPER, after, limits.sums_of_team(None, None))
    assert [a.tolist() for a in none] == [a.tolist() for a in after], "no episode"


@pytest.mark.parametrize("many", [8, 200])
def test_a_step_does_not_grow_with_the_episodes_of_a_block(many: int) -> None:
    limits = made("a<=4", "mean(a)<=4")
    one, more = (limits.sums_of_team(block(*[(6, 6)] * n), None) for n in (1, many))
    for each in zip(*(limits.after(np, HYPER, limits.first, s) for s in (one, more)), strict=True):
        np.testing.assert_allclose(*each)


def test_a_mean_is_over_all_steps_and_costs_what_the_sum_of_such_an_episode_would() -> None:
    by_step, by_episode = made("mean(a)<=0.5"), made("a<=5")
    assert (by_step.names, by_step.columns[0]) == (("a",), "cost/mean(a)")
    sums = by_step.sums_of_team(block((7,), (4,), length=10), None)
    assert sums.tolist() == [2, 20, 11, 1], "0.7 and 0.4 a step"
    np.testing.assert_allclose(by_step.costs(np, sums), [0.55])
    mean, total = (limits.after(np, HYPER, limits.first, sums) for limits in (by_step, by_episode))
    np.testing.assert_allclose(mean.multipliers, total.multipliers)
    norms = [limits.norm(np, HYPER, dual(2.0, length=10.0)) for limits in (by_step, by_episode)]
    np.testing.assert_allclose(norms[0]["prices"], norms[1]["prices"])
    batch = {"reward": np.zeros(2), COSTS: np.array([[0.5], [1.5]])}
    np.testing.assert_allclose(
        priced_batch(np, norms[0], batch)["reward"], [0, -2 / 3 / 5], atol=1e-7
    )


def test_while_a_limit_is_broken_its_multiplier_is_higher_by_the_damping() -> None:
    limits, hyper = made("a<=4"), {"constraint_rate": 0.1, "constraint_damping": 2.0}
    after = limits.after(np, hyper, dual(1.0), limits.sums_of_team(block((6,)), None))
    np.testing.assert_allclose(limits.multipliers(np, hyper, after), [1 + 0.1 * 0.5 + 2 * 0.5])
    below = limits.after(np, hyper, dual(1.0), limits.sums_of_team(block((0,)), None))
    assert limits.multipliers(np, hyper, below).tolist() == [0]


def test_what_is_reported() -> None:
    limits = made("a<=4", "b>=2")
    sums = limits.sums_of_team(block((6, 1), (1, 2)), None)
    told = limits.metrics(np, HYPER, dual(0.5, 0.0), sums)
    assert tuple(told) == limits.columns
    assert told == {
        "cost/a": 3.5,
        "violations/a": 0.5,
        "multiplier/a": 0.5,
        "cost/b": 1.5,
        "violations/b": 0.5,
        "multiplier/b": 0.0,
    }
    none = limits.metrics(np, HYPER, dual(0, 0), limits.sums_of_team(None, None))
    assert [n for n, value in none.items() if np.isfinite(value)] == [
        "multiplier/a",
        "multiplier/b",
    ]


def test_numbers_are_the_same_on_a_device() -> None:
    jnp = pytest.importorskip("jax.numpy")
    limits, there = made("a<=4", "mean(b)>=2"), block((6, 1), (8, 2), length=3)
    lengths = np.full(there.ended.shape, 3)
    found = [limits.sums(xp, there.recorded[COSTS], there.ended, lengths) for xp in (np, jnp)]
    np.testing.assert_allclose(*found)
    duals = [limits.after(xp, HYPER, limits.first, found[0]) for xp in (np, jnp)]
    for one, other in zip(*duals, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    norms = [limits.norm(xp, HYPER, duals[0]) for xp in (np, jnp)]
    for name, array in norms[0].items():
        np.testing.assert_allclose(array, norms[1][name], rtol=1e-6)


def test_rewards_are_those_minus_priced_costs_and_keep_their_scale() -> None:
    limits = made("a<=4", "b>=2")
    batch = {"reward": np.array([1.0, 1.0]), COSTS: np.array([[0.0, 0.0], [4.0, 2.0]])}
    free = priced_batch(np, limits.norm(np, HYPER, dual(0, 0)), batch)
    assert free["reward"].tolist() == [1, 1] and COSTS not in free
    dear = priced_batch(np, limits.norm(np, HYPER, dual(3, 1)), batch)
    np.testing.assert_allclose(dear["reward"], [1 / 5, (1 - 3 + 1) / 5], rtol=1e-6)
    assert priced_batch(np, {}, batch) is batch, "without constraints"


def test_multipliers_of_other_constraints_are_refused() -> None:
    one, two = made("a<=4"), made("a<=4", "b>=2")
    kept = one.stored(dual(2.0, beyond=0.5, length=3.0))
    for there, stored in zip(one.restored(kept), dual(2.0, beyond=0.5, length=3.0), strict=True):
        np.testing.assert_array_equal(there, stored)
    with pytest.raises(CheckpointError, match="multipliers"):
        two.restored(kept)
    assert not made().stored(made().first) and not made().recorded


def test_older_checkpoints_have_the_multipliers_only() -> None:
    restored = made("a<=4").restored({"constraints/multipliers": np.array([2.0])})
    assert [a.tolist() for a in restored] == [[2], [0], 1]


@pytest.mark.parametrize(
    "texts", [("cost",), ("cost<=x",), ("<=3",), ("a<1<2",), ("a<1", "a>0"), ("mean(a)<1",) * 2]
)
def test_what_is_no_constraint_is_refused_in_one_line(texts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="constraints") as refused:
        made(*texts)
    assert "\n" not in str(refused.value)
