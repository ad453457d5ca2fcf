"""The simulation of a run agrees with what can be computed by hand, and with the rules of real runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from exarl.plan.costs import Costs, round_seconds
from exarl.plan.forecast import PlannedRun, acting_rate, block_mean, learning_rate
from exarl.plan.lagging import Lagging
from exarl.plan.simulation import blocks, simulate, steps_seconds

LAGGING = ("async", "rma", "elastic")
FREE = Costs(step_s=0.01, act_s=0.0, block_s=0.0, send_s=0.0)
LEARNS = dataclasses.replace(FREE, update_s=0.02, updates_per_step=1.0)


@pytest.mark.parametrize("workflow", LAGGING)
def test_one_actor_beside_an_idle_learner_is_as_fast_as_its_steps(workflow: str) -> None:
    assert simulate(FREE, PlannedRun(workflow)).steps_per_s == pytest.approx(100, rel=1e-6)


def test_one_process_takes_turns() -> None:
    found = simulate(LEARNS, PlannedRun("sync", alone=True))
    assert found.steps_per_s == pytest.approx(1 / 0.03, rel=0.01)
    assert found.learner_busy == pytest.approx(2 / 3, rel=0.01)


@pytest.mark.parametrize("workflow", LAGGING)
@pytest.mark.parametrize("learners", [1, 3])
def test_learners_that_are_slower_than_their_actors_set_the_pace(
    workflow: str, learners: int
) -> None:
    run = PlannedRun(workflow, actors=12, learners=learners)
    found = simulate(LEARNS, run)
    assert found.steps_per_s == pytest.approx(learning_rate(LEARNS, run), rel=0.01)
    assert found.learner_busy == pytest.approx(1, abs=0.01)
    assert found.bound.startswith("learner")
    expected = 1 - found.steps_per_s / acting_rate(LEARNS, run)
    assert found.actor_idle == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("workflow", ("sync", *LAGGING))
def test_a_forecast_follows_from_its_seed(workflow: str) -> None:
    costs, run = Costs(0.01, spread=1.0, update_s=0.001), PlannedRun(workflow, actors=5)
    found = [simulate(costs, run, seed) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("workflow", LAGGING)
@pytest.mark.parametrize("bound", [0, 1, 4])
@pytest.mark.parametrize("update_s", [1e-5, 0.02])
def test_a_bound_on_the_lag_is_kept(workflow: str, bound: int, update_s: float) -> None:
    costs = dataclasses.replace(LEARNS, spread=0.8, update_s=update_s)
    found = simulate(costs, PlannedRun(workflow, actors=6, max_policy_lag=bound))
    assert found.lag_max == bound
    assert found.lag_mean <= bound


@pytest.mark.parametrize("workflow", LAGGING)
def test_no_block_is_lost_or_trained_twice(workflow: str) -> None:
    """Blocks made are those trained, those under way and those that wait."""
    run = PlannedRun(workflow, actors=7, learners=2, slots=2)
    drawn = 0
    times = blocks(dataclasses.replace(LEARNS, spread=0.5), run, np.random.default_rng(0))

    def counted():  # type: ignore[no-untyped-def]
        nonlocal drawn
        for time in times:
            drawn += 1
            yield time

    seen = Lagging(LEARNS, run, counted()).run(70, 140)
    most = run.actors * (1 + max(run.slots + 1, 1 + run.blocks_ahead))
    trained = 70 + seen.blocks
    assert 140 <= seen.blocks <= 141
    assert trained < drawn <= trained + most


def test_rounds_wait_for_no_learner_without_a_block() -> None:
    found = simulate(FREE, PlannedRun("async", actors=2, learners=2))
    assert found.steps_per_s == pytest.approx(200, rel=1e-3)


def test_more_of_the_slower_side_makes_a_run_faster() -> None:
    acting = [simulate(FREE, PlannedRun("async", actors=n)).steps_per_s for n in (1, 2, 4, 8)]
    assert acting == sorted(acting)
    heavy = dataclasses.replace(LEARNS, update_s=0.5)
    learning = [
        simulate(heavy, PlannedRun("async", actors=64, learners=n)).steps_per_s
        for n in (1, 2, 4, 8)
    ]
    assert learning == sorted(learning)


def test_only_workflows_in_turns_wait_for_the_slowest() -> None:
    costs = dataclasses.replace(FREE, spread=2.0)
    rate = {w: simulate(costs, PlannedRun(w, actors=16)).steps_per_s for w in ("sync", "async")}
    assert rate["sync"] < 0.8 * rate["async"]
    assert simulate(costs, PlannedRun("sync", actors=16)).bound == "slowest actor"


@pytest.mark.parametrize("steps", [8, 1000])
@pytest.mark.parametrize(("spread", "slow"), [(0.0, 0.05), (0.7, 0.0), (0.7, 0.05)])
def test_steps_have_the_mean_and_the_variance_that_were_asked_for(
    steps: int, spread: float, slow: float
) -> None:
    costs = Costs(step_s=0.5, spread=spread, slow=slow, slowness=4.0)
    found = steps_seconds(costs, steps, 20_000, np.random.default_rng(steps)) / steps
    usual = 0.5 / (1 + 3 * slow)
    square = usual**2 * (1 + spread**2) * (1 + 15 * slow)
    assert found.mean() == pytest.approx(0.5, rel=0.02)
    assert found.std() == pytest.approx(((square - 0.25) / steps) ** 0.5, rel=0.1)


@pytest.mark.parametrize("workflow", ["async", "elastic"])
def test_failures_cost_what_they_cost_in_the_mean(workflow: str) -> None:
    costs = Costs(step_s=1.0, failures_per_hour=30.0, restart_s=20.0)
    run = PlannedRun(workflow)
    found = blocks(costs, run, np.random.default_rng(3))
    mean = float(np.mean([next(found) for _ in range(20_000)]))
    assert mean == pytest.approx(block_mean(costs, run), rel=0.03)
    assert mean > 32 * 1.1


def test_a_round_of_several_learners_shares_the_batch() -> None:
    costs = Costs(1.0, update_s=0.1, updates_per_step=0.5, block_s=0.0, reduce_s=0.01)
    alone, two = round_seconds(costs, 1, 2, 64), round_seconds(costs, 2, 2, 64)
    assert alone == pytest.approx(3.2, rel=0.001)
    assert two == pytest.approx(32 * (0.05 * 1.1 + 0.01), rel=0.001)
