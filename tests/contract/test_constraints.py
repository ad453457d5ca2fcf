"""Limits on numbers of info: kept while learning, in every workflow that has them, after a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs import PYTHON, assert_same, everything_of, run, under_mpi
from support.matrix import OFF_POLICY, PPO

from exarl import ExaLearner
from exarl.errors import ConfigError, EnvironmentFailure
from exarl.records.metrics import read_rows
from exarl.run import play

SETTINGS: dict[str, Any] = {
    "env": "support.telling:Risky-v0",
    "hidden": [8],
    "block_steps": 16,
    "envs_per_actor": 2,
    "total_steps": 192,
    "constraints": ["risk<=1.25", "gain>=2"],
}
AGENTS: dict[str, dict[str, Any]] = {
    "PPO": {"agent": "PPO-v0", "learning_rate_fraction": 0, **PPO},
    "SAC": {"agent": "SAC-v0", **OFF_POLICY},
}


@pytest.fixture(autouse=True)
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "draw_curve", lambda *_: None)


def train(run_dir: Path, **others: Any) -> None:
    ExaLearner(
        argv=[], serial=True, progress=False, run_dir=str(run_dir), **{**SETTINGS, **others}
    ).run()


def check(run_dir: Path) -> None:
    last = read_rows(run_dir / "result.jsonl")[-1]
    assert last["multiplier/risk"] > 0, "at first half of the steps act, at twice the cost"
    assert 0 <= last["violations/risk"] <= 1 and 0 <= last["violations/gain"] <= 1
    assert 0.5 < last["cost/risk"] < 5 and last["cost/gain"] > 1


FUSED: dict[str, Any] = {"workflow": "fused", "env": "support.telling:PureRisky-v0"}


@pytest.mark.parametrize(
    ("agent", "workflow"),
    [
        ("PPO", {}),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [("SAC", {}), ("PPO", FUSED), ("SAC", FUSED)]
        ),
    ],
)
def test_a_stopped_run_continues_with_its_multipliers(
    agent: str, workflow: dict[str, Any], tmp_path: Path
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    words = {**AGENTS[agent], **workflow, "checkpoint_interval": 1e6}
    train(whole, **words)
    for steps in (96, 192):
        train(parts, **words, total_steps=steps)
    assert_same(everything_of(parts), everything_of(whole))
    check(whole)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"constraints": ["risk"]}, "NAME<NUMBER"),
        ({**FUSED, "constraints": ["cost<=3"]}, "no number 'cost'.*it has.*gain"),
        ({"agent": "DQN-v0", "epochs": None, "minibatches": None}, "constraints"),
        ({**AGENTS["SAC"], "epochs": None, "minibatches": None, "n_step": 3}, "n_step 1"),
    ],
)
def test_what_cannot_be_constrained_is_refused(
    words: dict[str, Any], why: str, tmp_path: Path
) -> None:
    given = {**AGENTS["PPO"], **words}
    given = {name: value for name, value in given.items() if value is not None}
    with pytest.raises(ConfigError, match=why) as refused:
        train(tmp_path / "run", **given)
    assert "\n" not in str(refused.value)


def test_a_number_that_is_not_there_is_an_error_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match=r"no number .cost.*it has risk, gain"):
        train(tmp_path / "run", **{**AGENTS["PPO"], "constraints": ["cost<=3"]})


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        *("--workflow async", "--workflow rma", "--workflow seed --env_isolation process"),
        "--workflow rma --learner_procs 2",
        "--workflow sync --process_per_env 2",
    ],
)
def test_costs_come_from_other_ranks(words: str, tmp_path: Path) -> None:
    given = {**SETTINGS, **AGENTS["PPO"], "constraints": "risk<=1.25,gain>=2", "total_steps": 640}
    command = [PYTHON, "-m", "exarl", "train", *(f"--{k}={v}" for k, v in given.items())]
    command += [f"--run_dir={tmp_path / 'run'}", *words.split()]
    environ = {"PYTHONPATH": str(Path(__file__).parent.parent)}
    run(under_mpi(4 if "learner" in words else 3, command), environ=environ).ok()
    check(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("envs", [1, 8, 24])
def test_with_any_number_of_environments_the_limit_is_kept(
    envs: int, seed: int, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "agent": "PPO-v0",
        "hidden": [32],
        "block_steps": 512,
        "n_envs": envs,
        "seed": seed,
        **FUSED,
        "constraints": ["mean(risk)<=0.125"],
        "total_steps": 60 * 512 * envs,
    }
    train(tmp_path / "run", **settings)
    rows = read_rows(tmp_path / "run" / "result.jsonl")
    late = [row for row in rows if row["timesteps_total"] > 0.6 * settings["total_steps"]]
    assert np.mean([row["cost/mean(risk)"] for row in late]) == pytest.approx(0.125, abs=0.02)
    assert 4.4 < np.mean([row["episode_reward_mean"] for row in late]) < 5.6


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("agent", AGENTS)
def test_the_best_within_the_limit_is_learned(agent: str, seed: int, tmp_path: Path) -> None:
    """Without the limit the best policy always acts, which costs four times as much as allowed."""
    settings: dict[str, Any] = {"agent": "PPO-v0", "block_steps": 512, "total_steps": 30_000}
    if agent == "SAC":
        settings = {
            "agent": "SAC-v0",
            "block_steps": 64,
            "total_steps": 14_000,
            "updates_per_step": 0.5,
        }
        settings |= {"alpha": 0.05, "learn_alpha": False}
    run_dir = tmp_path / "run"
    settings |= {"constraints": ["risk<=1.25"], "hidden": [32], "envs_per_actor": 1, "seed": seed}
    train(run_dir, **settings)
    rows = read_rows(run_dir / "result.jsonl")
    late = [row for row in rows if row["timesteps_total"] > 0.6 * settings["total_steps"]]
    cost = np.mean([row["cost/risk"] for row in late if "cost/risk" in row])
    reward = np.mean([row["episode_reward_mean"] for row in late])
    assert cost == pytest.approx(1.25, abs=0.2)
    assert 4.4 < reward < 5.6, "5 is what the limit allows, 10 what there is without it"
