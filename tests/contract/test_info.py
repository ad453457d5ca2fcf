"""Numbers of info as metrics, in every workflow: the same columns with the same meaning."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from support.jobs import PYTHON, assert_same, everything_of, run, summary_of, under_mpi

from exarl import ExaLearner
from exarl.errors import ConfigError, EnvironmentFailure
from exarl.records.metrics import read_rows
from exarl.run import play

SETTINGS: dict[str, Any] = {
    "env": "support.telling:Telling-v0",
    "agent": "Random-v0",  # what is logged does not depend on who acts
    "block_steps": 7,
    "envs_per_actor": 2,
    "total_steps": 140,
    "log_info": ["energy", "force"],
}

TWO_FOLD = "support.telling:TwoFold-v0"


@pytest.fixture(autouse=True)
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "draw_curve", lambda *_: None)


def train(run_dir: Path, **others: Any) -> None:
    ExaLearner(
        argv=[], serial=True, progress=False, run_dir=str(run_dir), **{**SETTINGS, **others}
    ).run()


def told(run_dir: Path) -> dict[str, float]:
    """The columns of the last row."""
    row = read_rows(run_dir / "result.jsonl")[-1]
    return {name: value for name, value in row.items() if name.startswith("info/")}


def check(columns: dict[str, float]) -> None:
    """What five steps of these environments give, whatever each episode began with."""
    mean, last = columns["info/energy_mean"], columns["info/energy_last"]
    assert mean == pytest.approx(last + 2)
    assert columns["info/energy_min"] <= last <= mean <= columns["info/energy_max"] < 10
    assert [columns[f"info/force.1_{what}"] for what in ("mean", "last", "min", "max")] == [
        *(-3, -5, -5, -1)
    ]
    assert not [name for name in columns if "field" in name or "bad" in name]


def test_they_are_columns_of_every_table(tmp_path: Path) -> None:
    train(tmp_path / "run", eval_interval=70, eval_episodes=2)
    check(told(tmp_path / "run"))
    for name in ("progress.csv", "evaluations.csv"):
        with (tmp_path / "run" / name).open(newline="") as file:
            rows = list(csv.DictReader(file))
        check({key: float(value) for key, value in rows[-1].items() if key.startswith("info/")})
        assert all(len(row) == len(rows[0]) and None not in row for row in rows)


@pytest.mark.parametrize("id", ["Telling-v0", "KeptTelling-v0"])
def test_a_stopped_run_continues_with_its_sums(id: str, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, env=f"support.telling:{id}", checkpoint_interval=1e6)
    for steps in (70, 112, 140):  # within episodes
        train(parts, env=f"support.telling:{id}", total_steps=steps, checkpoint_interval=1e6)
    assert_same(everything_of(parts), everything_of(whole))


def test_numbers_chosen_later_are_further_columns(tmp_path: Path) -> None:
    train(tmp_path / "run", total_steps=70, log_info=[])
    assert not told(tmp_path / "run")
    train(tmp_path / "run")
    check(told(tmp_path / "run"))
    with (tmp_path / "run" / "progress.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["info/energy_last"] != "" for row in rows] == [False] * 5 + [True] * 5


@pytest.mark.parametrize("condition", ["info/energy_min<-4", "info/force.1_mean <= -2.9"])
def test_a_run_stops_when_one_reaches_a_limit(condition: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    train(run_dir, stop_when=condition, total_steps=10_000, reward_window=9)
    assert summary_of(run_dir)["reason"] == "stop_when"
    assert summary_of(run_dir)["timesteps_total"] < 500
    column, _, limit = condition.replace("=", "").partition("<")
    assert told(run_dir)[column.strip()] <= float(limit)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"stop_when": "info/energy_min"}, "NAME<NUMBER"),
        ({"stop_when": "info/energy<3"}, "info/energy_mean"),
        ({"stop_when": "info/energy_last<3", "log_info": []}, "needs log_info"),
        ({"workflow": "fused", "agent": "PPO-v0"}, "log_info cannot be used in workflow 'fused'"),
        (
            {
                "workflow": "fused",
                "agent": "A2C-v0",
                "env": TWO_FOLD,
                "log_info": [],
                "weights": [1, 1],
            },
            "weights cannot be used in work",
        ),
    ],
)
def test_what_cannot_be_logged_is_refused_in_one_line(
    words: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        train(tmp_path / "run", **words)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("isolation", ["inline", "process"])
def test_several_rewards_are_weighed_and_told_one_by_one(isolation: str, tmp_path: Path) -> None:
    settings = {"env": TWO_FOLD, "weights": [0.5, -2], "log_info": ["reward"]}
    train(tmp_path / "run", **settings, env_isolation=isolation)
    row = read_rows(tmp_path / "run" / "result.jsonl")[-1]
    assert row["episode_reward_mean"] == 5 * 0.5 - 2 * 15
    assert (row["info/reward.0_mean"], row["info/reward.1_last"]) == (1, 5)


@pytest.mark.parametrize(
    ("id", "weights", "why"),
    [
        ("TwoFold-v0", [1, 2, 3], r"weights are 3, but its rewards \(2,\)"),
        ("Telling-v0", [1], "its reward is one number"),
    ],
)
@pytest.mark.parametrize("isolation", ["inline", "process"])
def test_rewards_that_weights_do_not_fit_are_refused_before_the_run(
    id: str, weights: list[float], why: str, isolation: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=why):
        train(
            tmp_path / "run",
            env=f"support.telling:{id}",
            weights=weights,
            env_isolation=isolation,
        )
    assert not (tmp_path / "run").exists()


def test_several_rewards_without_weights_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="with several, give --weights"):
        train(tmp_path / "run", env=TWO_FOLD)


def test_they_come_out_of_an_isolated_environment(tmp_path: Path) -> None:
    train(tmp_path / "inline")
    train(tmp_path / "apart", env_isolation="process")
    assert told(tmp_path / "apart") == told(tmp_path / "inline") != {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "--workflow async",
        "--workflow rma",
        "--workflow seed",
        "--workflow sync --process_per_env 2",
        "--workflow rma --learner_procs 2",
    ],
)
def test_they_come_from_other_ranks(words: str, tmp_path: Path) -> None:
    given = [f"--{k}={','.join(v) if k == 'log_info' else v}" for k, v in SETTINGS.items()]
    command = [PYTHON, "-m", "exarl", "train", *given, f"--run_dir={tmp_path / 'run'}"]
    environ = {"PYTHONPATH": str(Path(__file__).parent.parent)}
    run(under_mpi(4 if "learner" in words else 3, [*command, *words.split()]), environ=environ).ok()
    check(told(tmp_path / "run"))
