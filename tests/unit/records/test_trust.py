"""What a stored run or study names that is not EXARL's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exarl.config import FAMILIES
from exarl.records.trust import names_of_run, names_of_study
from exarl.run.configure import configure


def config(**parts: dict[str, Any]) -> dict[str, Any]:
    return {**{family: {} for family in FAMILIES}, **parts}


@pytest.mark.parametrize(
    "words",
    [
        ["--env", "CartPole-v1", "--agent", "DQN-v0"],
        ["--env", "ExaBooster-v0", "--agent", "SAC-v0", "--workflow", "async"],
        ["--env", "ExaWaterClusterDiscrete-v0", "--workflow", "elastic", "--model_type", "LSTM"],
        ["--env", "FrozenLake-v1", "--map_name", "8x8"],
        ["--workflow", "fused", "--agent", "PPO-v0", "--sweep", "gamma=0.9,0.99;lambda=0:1:3"],
    ],
)
def test_what_is_packaged_names_nothing(words: list[str]) -> None:
    assert names_of_run(configure(flags=words).to_json()) == []


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ({"learner": {"env": "my_env:Mine-v0"}}, "env 'my_env:Mine-v0'"),
        ({"learner": {"agent": "a.b:C"}}, "agent 'a.b:C'"),
        ({"learner": {"workflow": "w:W"}}, "workflow 'w:W'"),
        ({"learner": {"model_type": "m:M"}}, "model_type 'm:M'"),
        ({"learner": {"log_to": ["wandb"]}}, "log_to wandb"),
        ({"env": {"command": "reboot"}}, "command 'reboot'"),
        ({"env": {"potential": "mod:function"}}, "potential 'mod:function'"),
        ({"env": {"surrogate": "/tmp/x.h5"}}, "surrogate '/tmp/x.h5'"),
        ({"env": {"address": "tcp://far:1"}}, "address 'tcp://far:1'"),
        ({"workflow": {"address": "auto"}}, "address 'auto'"),
        ({"agent": {"deep": [{"x": ["a b"]}]}}, "deep 'a b'"),
    ],
)
def test_what_is_outside_is_named(parts: dict[str, Any], shown: str) -> None:
    assert names_of_run(config(**parts)) == [shown]


def test_a_long_text_hides_nothing_silently() -> None:
    (name,) = names_of_run(config(env={"command": "x " * 1000}))
    assert name.endswith("and 1700 more characters")


def study(folder: Path, **train: str) -> dict[str, Any]:
    return {"folder": str(folder), "config": None, "space": {}, "train": train}


def test_studies_are_read_as_typed(tmp_path: Path) -> None:
    plain = study(tmp_path, env="CartPole-v1", hidden="64,64", gamma=".9", total_steps="100")
    plain["space"] = {"agent": {"choices": ["DQN-v0", "PPO-v0"]}, "lr": {"low": 0.1, "high": 1.0}}
    assert names_of_study(plain) == []
    assert names_of_study(study(tmp_path, **{"learner.env": "m:E"})) == ["env 'm:E'"]
    assert names_of_study(study(tmp_path, command="rm -r x")) == ["command 'rm -r x'"]
    plain["space"]["agent"]["choices"].append("evil:A")
    assert names_of_study(plain) == ["agent 'evil:A'"]
    assert names_of_study({**study(tmp_path), "config": "/x.json"})
    (tmp_path / "exarl" / "config").mkdir(parents=True)
    assert names_of_study(study(tmp_path)), "its trainings would read the settings there"
