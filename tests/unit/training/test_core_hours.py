"""What a run costs: simulations and core-hours, counted exactly and over all parts of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import exarl
from exarl.config import LearnerConfig
from exarl.records.clock import Clock
from exarl.records.directory import RunDirectory
from exarl.records.trace import Tracer
from exarl.training.core_hours import CoreHours
from exarl.training.counters import Counters, stored_counters
from exarl.training.rounds import Report
from exarl.types import ACTOR_PHASES

HOUR = dict.fromkeys(ACTOR_PHASES, 0.0) | {"env": 3000.0, "restart": 600.0, "wait": 7200.0}


def cost_of(counters: Counters, learned: float = 0.0, **config: int) -> CoreHours:
    clock = Clock(Tracer(0, "learner", enabled=False))
    clock.add("learn", learned)
    clock.add("wait", 99.0)
    return CoreHours(LearnerConfig(**config), counters, clock)


@pytest.mark.parametrize(
    ("config", "cores"),
    [({}, 1), ({"process_per_env": 8}, 8), ({"process_per_env": 8, "cores_per_env": 64}, 64)],
)
def test_time_in_environments_counts_for_each_of_their_cores(
    config: dict[str, int], cores: int
) -> None:
    cost = cost_of(Counters(), **config)
    cost.add(Report(seconds=list(HOUR.values())) + Report(seconds=list(HOUR.values())))
    assert cost.columns()["core_hours_simulated"] == pytest.approx(2 * cores)
    assert cost.columns()["core_hours_learner"] == 0


def test_each_learner_counts_while_it_learns() -> None:
    cost = cost_of(Counters(), learned=1800.0, learner_procs=3)
    cost.add(Report(steps=5))  # of fused: without blocks
    assert cost.columns() == {
        "core_hours_simulated": 0,
        "core_hours_learner": 1.5,
        "core_hours_total": 1.5,
    }


def test_a_resumed_run_adds_to_what_it_had() -> None:
    first = cost_of(Counters(), learned=1800.0)
    first.add(Report(seconds=list(HOUR.values())))
    kept = first.counters.state(5.0, first.learner_core_s)
    again = cost_of(stored_counters(json.loads(json.dumps(kept))), learned=0.0)
    assert again.columns() == first.columns()
    again.clock.add("compile", 1800.0)
    assert again.columns()["core_hours_total"] == 2.0


@pytest.mark.parametrize(
    ("workflow", "agent"),
    [
        ("sync", "Random-v0"),
        pytest.param("fused", "A2C-v0", marks=pytest.mark.slow),  # 10 s to compile
    ],
)
def test_simulations_are_the_episodes_begun(tmp_path: Path, workflow: str, agent: str) -> None:
    envs, words = 4, {"workflow": workflow, "agent": agent, "env": "ExaCovid-v0"}
    result = exarl.train(
        run_dir=str(tmp_path / "run"),
        progress=False,
        total_steps=384,
        envs_per_actor=envs,
        n_steps=20,
        **words,
    )
    assert result is not None
    summary = result.summary
    assert summary["simulations_total"] == summary["episodes_total"] + envs
    assert result.curve["simulations_total"][-1] == summary["simulations_total"]
    again = exarl.resume(tmp_path / "run", progress=False, total_steps=768)
    assert again is not None
    assert again.summary["simulations_total"] == again.summary["episodes_total"] + envs
    assert again.summary["core_hours_total"] > summary["core_hours_total"] > 0


def test_core_hours_end_a_run(tmp_path: Path) -> None:
    result = exarl.train(
        run_dir=str(tmp_path / "run"),
        progress=False,
        agent="Random-v0",
        env="CartPole-v1",
        cores_per_env=1000,
        core_hours=0.002,
        curve_x="core_hours",
    )
    assert result is not None
    assert result.reason == "core_hours"
    assert 0.002 <= result.summary["core_hours_simulated"] < 0.02  # a block on a busy machine
    assert RunDirectory(result.run_dir).curve.is_file()
