"""Constraints: multipliers that follow the episodes' costs, and rewards that mind their prices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from exarl.agents.constraints import COSTS, Constraints, priced_batch
from exarl.errors import CheckpointError, ConfigError


def made(*texts: str, rate: float = 0.1) -> Constraints:
    return Constraints.of(SimpleNamespace(constraints=texts, constraint_rate=rate))


def block(*episodes: tuple[float, ...]) -> Any:
    """A block of one environment whose episodes of a step cost this much, and a step of another."""
    sums = np.array([*episodes, (1e9,) * len(episodes[0])], np.float32)[:, None]
    ended = np.ones(sums.shape[:2], bool)
    ended[-1] = False
    return SimpleNamespace(recorded={COSTS: np.stack([sums, sums], 2)}, ended=ended)


def test_a_multiplier_rises_by_what_is_beyond_the_limit_and_stays_above_nothing() -> None:
    limits = made("a<=4", "b>=2", "c<0")
    sums = limits.sums(block((6, 1, 3), (8, 2, -1)), None)
    assert sums.tolist() == [2, 14, 3, 2, 2, 1, 1]
    after = limits.after(np.zeros(3), sums)
    np.testing.assert_allclose(after, [0.1 * 6 / 4, 0.1 * 1 / 2, 0.1 * 2 / 1])
    lower = limits.after(after, limits.sums(block((0, 9, 0)), None))
    np.testing.assert_allclose(lower, [after[0] - 0.1, 0, after[2]])
    assert limits.after(after, limits.sums(None, None)).tolist() == after.tolist(), "no episode"


def test_what_is_reported() -> None:
    limits = made("a<=4", "b>=2")
    assert limits.columns == (
        *("cost/a", "violations/a", "multiplier/a"),
        *("cost/b", "violations/b", "multiplier/b"),
    )
    told = limits.metrics(np.array([0.5, 0.0]), limits.sums(block((6, 1), (1, 2)), None))
    assert told == {
        "cost/a": 3.5,
        "violations/a": 0.5,
        "multiplier/a": 0.5,
        "cost/b": 1.5,
        "violations/b": 0.5,
        "multiplier/b": 0.0,
    }
    none = limits.metrics(np.zeros(2), limits.sums(None, None))
    assert set(none) == {"multiplier/a", "multiplier/b"}


def test_rewards_are_those_minus_priced_costs_and_keep_their_scale() -> None:
    limits = made("a<=4", "b>=2")
    batch = {"reward": np.array([1.0, 1.0]), COSTS: np.array([[0.0, 0.0], [4.0, 2.0]])}
    free = priced_batch(np, limits.norm(np.zeros(2)), batch)
    assert free["reward"].tolist() == [1, 1] and COSTS not in free
    dear = priced_batch(np, limits.norm(np.array([3.0, 1.0])), batch)
    np.testing.assert_allclose(dear["reward"], [1 / 5, (1 - 3 + 1) / 5], rtol=1e-6)
    assert priced_batch(np, {}, batch) is batch, "without constraints"


def test_multipliers_of_other_constraints_are_refused() -> None:
    one, two = made("a<=4"), made("a<=4", "b>=2")
    np.testing.assert_array_equal(one.restored(one.stored(np.array([2.0]))), [2.0])
    with pytest.raises(CheckpointError, match="multipliers"):
        two.restored(one.stored(one.first))
    assert not made().stored(made().first) and not made().recorded


@pytest.mark.parametrize("texts", [("cost",), ("cost<=x",), ("<=3",), ("a<1<2",), ("a<1", "a>0")])
def test_what_is_no_constraint_is_refused_in_one_line(texts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="constraints") as refused:
        made(*texts)
    assert "\n" not in str(refused.value)
