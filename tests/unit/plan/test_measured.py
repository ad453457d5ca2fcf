"""Costs are those that ``exarl bench`` has measured."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from exarl.errors import ConfigError
from exarl.plan.costs import DECODE_S
from exarl.plan.measured import costs_of
from exarl.plan.simulation import simulate

BENCH: dict[str, Any] = {
    "workflow": "async", "envs_per_actor": 2, "block_steps": 16, "procs": 5, "learner_procs": 1,
    "process_per_env": 2,
    "environment": {"steps_per_s": 50.0, "median_us": 19e3, "p99_us": 40e3, "spread": 0.3},
    "acting": {"call_us": 30.0},
    "learning": {"steps_per_s": 500.0, "updates_per_s": 250.0, "update_us": 4000.0, "weights": 1000},
    "training": None,
    "time_split": {"learner": {}, "actors": {}},
}  # fmt: skip


def bench(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(BENCH) | changes


def test_parts_that_were_measured_alone() -> None:
    costs, run = costs_of(bench())
    assert (costs.step_s, costs.spread, costs.act_s) == (0.02, 0.3, 30e-6)
    assert (costs.update_s, costs.updates_per_step) == (0.004, 0.5)
    assert (run.actors, run.learners, run.process_per_env, run.steps) == (2, 1, 2, 32)


def test_the_spread_follows_from_percentiles_in_older_files() -> None:
    old = bench()
    del old["environment"]["spread"]
    assert costs_of(old)[0].spread == pytest.approx(0.328, rel=0.01)


@pytest.mark.parametrize("steps_per_s", [90.0, 100.0])
def test_a_run_that_was_measured_is_predicted_as_it_was(steps_per_s: float) -> None:
    training = {"steps_per_s": steps_per_s, "whole": False}
    split = {"learner": {"wait": 0.7}, "actors": {"env": 1.0}}
    costs, run = costs_of(bench(training=training, time_split=split))
    found = simulate(costs, run)
    assert found.steps_per_s == pytest.approx(min(steps_per_s, 99.85), rel=0.01)
    assert found.learner_busy == pytest.approx(0.3, abs=0.01)


def test_a_learner_that_never_waits_is_predicted_as_it_was() -> None:
    split = {
        "learner": {"start": 0.2, "learn": 0.64, "report": 0.16},
        "actors": {"wait": 0.8, "env": 0.2},
    }
    training = {"steps_per_s": 40.0, "whole": False}
    costs, run = costs_of(bench(training=training, time_split=split))
    assert simulate(costs, run).steps_per_s == pytest.approx(40, rel=0.01)
    assert costs.block_s == pytest.approx(32 / 40 - 16 * 0.004 - DECODE_S)


def test_updates_that_are_slower_beside_other_ranks_are_told_from_the_rest_of_a_block() -> None:
    split = {"learner": {"learn": 0.9, "report": 0.1}, "actors": {"wait": 0.8, "env": 0.2}}
    training = {"steps_per_s": 150.0, "whole": False}
    costs, run = costs_of(bench(training=training, time_split=split))
    assert costs.update_s == pytest.approx(0.9 / 150 / 0.5)
    assert costs.block_s == pytest.approx(0.1 * 32 / 150 - DECODE_S)
    assert simulate(costs, run).learner_busy == pytest.approx(0.66, abs=0.02)


def test_what_averaging_takes_follows_from_a_team() -> None:
    team = bench(learner_procs=2, procs=6, process_per_env=1, training={"steps_per_s": 200.0})
    team["time_split"] = {"learner": {"learn": 1.0}, "actors": {"wait": 0.9, "env": 0.1}}
    costs, run = costs_of(team)
    assert costs.reduce_s > 0
    assert simulate(costs, run).steps_per_s == pytest.approx(200, rel=0.01)


@pytest.mark.parametrize("found", [{}, [], 1, {"environment": {}}, bench(environment=None)])
def test_other_files_are_refused(found: Any) -> None:
    with pytest.raises(ConfigError, match="not the output of 'exarl bench --json'"):
        costs_of(found)
