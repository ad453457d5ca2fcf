"""Numbers of info as metrics, in every workflow: the same columns with the same meaning."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs import PYTHON, assert_same, everything_of, run, summary_of, under_mpi

from exarl import ExaLearner
from exarl.envs.info import numbers_in
from exarl.envs.registration import make_env
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

FUSED: dict[str, Any] = {
    "workflow": "fused",
    "agent": "PPO-v0",
    "env": "support.telling:PureRisky-v0",
    "n_envs": 4,
    "hidden": [8],
    "block_steps": 16,
    "total_steps": 512,
    "log_info": ["all"],
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


@pytest.mark.slow
def test_in_fused_they_are_the_same_columns_with_the_same_meaning(tmp_path: Path) -> None:
    limits = ["risk<=1.25", "mean(gain)>=0.9"]
    stop: dict[str, Any] = {"stop_when": "info/step_last>9", "reward_window": 20}
    train(tmp_path / "run", **FUSED, **stop, constraints=limits)
    assert summary_of(tmp_path / "run")["reason"] == "stop_when"
    found, steps = told(tmp_path / "run"), np.arange(1, 11)
    series = {
        "step": steps,
        "force.0": steps,
        "force.1": -steps,
        "parts.square": steps**2,
        "parts.bad": np.ones(10),
        "field.min": steps,
        "field.max": steps + 99,
        "field.mean": steps + 49.5,
    }
    expected = {
        f"info/{name}_{what}": value
        for name, array in series.items()
        for what, value in zip(
            ("mean", "last", "min", "max"),
            (array.mean(), array[-1], array.min(), array.max()),
            strict=True,
        )
    }
    drawn = {f"info/{n}_{w}" for n in ("risk", "gain") for w in ("mean", "last", "min", "max")}
    assert set(found) == set(expected) | drawn
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert 0.1 < found["info/risk_mean"] < 0.4 and found["info/gain_max"] == 1
    row = read_rows(tmp_path / "run" / "result.jsonl")[-1]
    assert row["episode_reward_mean"] == pytest.approx(10 * row["info/gain_mean"])
    assert 0.5 < row["cost/risk"] < 5 and 0.1 < row["cost/mean(gain)"] < 0.9
    assert row["multiplier/risk"] > 0 and row["multiplier/mean(gain)"] > 0


@pytest.mark.parametrize(
    "id",
    [f"Exa{n}-v0" for n in ("CH", "Booster", "Covid", "Tetris", "WaterClusterDiscrete")],
)
def test_on_a_device_the_science_environments_tell_the_same_numbers(id: str) -> None:
    jax = pytest.importorskip("jax")
    device = pytest.importorskip("exarl.envs.device")
    env, _ = make_env(id, {})
    env.reset(seed=1)
    *_, info = env.step(env.action_space.sample())
    functions = device.functions_of(env)

    def told(key: Any) -> Any:
        return device.numbers(functions.state_info(functions.initial(key)))

    assert set(jax.eval_shape(told, jax.random.key(0))) == {name for name, _ in numbers_in(info)}


@pytest.mark.slow
def test_a_stopped_run_in_fused_continues_with_its_sums(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    settings = {**FUSED, "learning_rate_fraction": 0, "checkpoint_interval": 1e6}
    train(whole, **settings)
    for steps in (64, 192, 512):  # within episodes
        train(parts, **{**settings, "total_steps": steps})
    assert_same(everything_of(parts), everything_of(whole))
    train(parts, **{**settings, "total_steps": 640, "log_info": ["gain", "force"]})
    train(parts, **{**settings, "total_steps": 768, "log_info": []})
    assert summary_of(parts)["timesteps_total"] == 768, "log_info may change"


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
        ({**FUSED, "n_envs": None, "n_seeds": 2}, "log_info is for one agent"),
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
    words = {name: value for name, value in words.items() if value is not None}
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
