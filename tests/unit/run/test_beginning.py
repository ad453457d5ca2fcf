"""Runs that begin with another one's policy: what they take, what they say of it, what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import exarl
from exarl.errors import ConfigError
from exarl.records.checkpoint import load_newest

SMALL: dict[str, Any] = {"agent": "A2C-v0", "env": "CartPole-v1", "hidden": [8], "progress": False,
                         "envs_per_actor": 1, "block_steps": 16, "total_steps": 64}  # fmt: skip


class Downhill(gymnasium.Env[Any, Any]):
    """CartPole's spaces, another reward."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.full(4, self.t, np.float32), -float(action), self.t == 7, False, {}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("old") / "run"
    exarl.train(run_dir=str(path), eval_interval=32, eval_episodes=1, **SMALL)
    return path


def kept(run: Path, name: str = "start") -> dict[str, np.ndarray]:
    found = load_newest(run / name)
    assert found is not None
    return found.arrays["agent"]


def test_the_new_run_says_where_it_began_and_goes_on_without_the_old(
    old: Path, tmp_path: Path
) -> None:
    there, run = tmp_path / "there", tmp_path / "new"
    shutil.copytree(old, there)
    exarl.train(run_dir=str(run), start_from=str(there), **{**SMALL, "env": Downhill, "seed": 5})
    said = json.loads((run / "manifest.json").read_text())["start"]
    assert (said["run"], said["steps"], said["parts"]) == (str(there), 64, ["policy"])
    sums = (there / said["checkpoint"] / "SHA256SUMS").read_text()
    assert f"{said['sha256']}  agent.safetensors" in sums
    np.testing.assert_array_equal(kept(run)["weights"], kept(there, "checkpoints")["weights"])
    shutil.rmtree(there)
    again = exarl.resume(run, env=Downhill, progress=False, total_steps=96)
    assert again is not None
    assert again.summary["timesteps_total"] == 96
    shutil.rmtree(run / "checkpoints")  # killed before its first checkpoint
    begun = exarl.resume(run, env=Downhill, progress=False, total_steps=128)
    assert begun is not None


def test_the_first_actions_are_those_of_the_other_run(old: Path, tmp_path: Path) -> None:
    seen = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    run = tmp_path / "new"
    # A step size of almost nothing, so that what the run ends with is what it began with.
    exarl.train(run_dir=str(run), start_from=str(old), seed=5, learning_rate=1e-12, **SMALL)
    assert (exarl.load(run).act(seen) == exarl.load(old).act(seen)).all()


def test_the_best_policy_is_taken_on_request(old: Path, tmp_path: Path) -> None:
    run = tmp_path / "new"
    exarl.train(run_dir=str(run), start_from=str(old), start_best=True, **SMALL)
    assert json.loads((run / "manifest.json").read_text())["start"]["checkpoint"].startswith(
        "best/"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden": [9]}, r"is \[.*8.*\] in the checkpoint, \[.*9.*\] in this run"),
        ({"agent": "PPO-v0"}, "agent is A2C-v0 in the checkpoint, PPO-v0 in this run"),
        ({"env": "Acrobot-v1"}, r"observation is float32 \[4\] in the checkpoint"),
        ({"start_parts": ["replay"]}, "this agent has no replay"),
        (
            {"start_parts": ["policy", "critics"], "start_best": True},
            "start_parts can only be policy",
        ),
        ({"start_from": "nowhere"}, "no run directory at nowhere"),
        ({"start_from": None, "start_best": True}, "need start_from"),
    ],
)
def test_a_mismatch_is_said_before_anything_is_written(
    old: Path, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    run = tmp_path / "new"
    with pytest.raises(ConfigError, match=said):
        exarl.train(**{"run_dir": str(run), "start_from": str(old), **SMALL, **change})
    assert not run.exists()
