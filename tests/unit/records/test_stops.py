"""The table of stop rules: what ends a run, and what is known of it before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exarl.config import STOPS, LearnerConfig
from exarl.records.directory import RunDirectory
from exarl.records.ending import write_failure
from exarl.records.metrics import COLUMNS
from exarl.records.stops import RULES, first_met, limit_of, met_by_summary
from exarl.training.counters import Counters
from exarl.training.rounds import Report

NOW = {
    "timesteps_total": 100,
    "episodes_total": 10,
    "time_total_s": 5.0,
    "core_hours_total": 0.5,
    "episode_reward_mean": 7.0,
}
SUMMARY = {
    "timesteps_total": 100,
    "episodes_total": 10,
    "wall_s": 5.0,
    "core_hours_total": 0.5,
    "last_reward_mean": 7.0,
}
MEASURED = {"time_total_s", "core_hours_total", "episode_reward_mean"}


def test_every_stop_parameter_has_one_rule() -> None:
    assert tuple(rule.key for rule in RULES) == STOPS
    assert {rule.column for rule in RULES} <= {*COLUMNS}


def test_every_rule_compares_a_column_that_the_loop_knows() -> None:
    for column in {rule.column for rule in RULES} - MEASURED:
        assert Counters().column(column) == 0


def test_every_rule_has_its_total_in_the_summary(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.create({}, {})
    write_failure(run, "the learner could give no summary")
    assert {rule.total for rule in RULES} <= json.loads(run.summary.read_text()).keys()


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({}, None),
        ({"total_steps": 101}, None),
        ({"total_steps": 100}, "total_steps"),
        ({"n_episodes": 10, "wall_time": 1.0}, "n_episodes"),
        ({"n_episodes": 11, "wall_time": 5.0}, "wall_time"),
        ({"total_steps": 101, "core_hours": 0.5}, "core_hours"),
        ({"core_hours": 0.51}, None),
        ({"total_steps": 101, "target_reward": 7.0}, "target_reward"),
        ({"target_reward": 7.5}, None),
    ],
)
def test_the_first_limit_that_is_reached_ends_a_run(
    limits: dict[str, Any], reason: str | None
) -> None:
    config = LearnerConfig(**limits, reward_window=10)
    assert first_met(config, NOW.get) == reason
    assert met_by_summary(config, SUMMARY) == reason


def test_the_reward_counts_once_its_window_is_full() -> None:
    config = LearnerConfig(target_reward=1.0, reward_window=11)
    assert met_by_summary(config, SUMMARY) is None
    assert first_met(config, {**NOW, "episode_reward_mean": None}.get) is None


def test_a_column_has_the_limit_of_its_rule() -> None:
    limits = {"total_steps": 60, "n_episodes": None, "target_reward": -3.0}
    assert limit_of("timesteps_total", limits) == 60
    assert limit_of("episode_reward_mean", limits) == -3
    assert limit_of("episodes_total", limits) is None
    assert limit_of("updates_total", limits) is None


def test_counters_know_the_columns_that_count() -> None:
    counters = Counters(steps=7, episodes=3)
    counters.add(Report(totals={"env_restarts": 2}), updates=0)
    assert counters.column("timesteps_total") == 7
    assert counters.column("episodes_total") == 3
    assert counters.column("env_restarts") == 2
    with pytest.raises(KeyError):
        counters.column("loss")
