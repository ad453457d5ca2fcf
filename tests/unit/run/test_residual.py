"""Runs that correct a controller: trained, evaluated, loaded, resumed, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import exarl
from exarl.acting.evaluation import greedy, play
from exarl.cli.export import stored_policy
from exarl.envs.episode import Episode
from exarl.envs.residual import Residual
from exarl.errors import ConfigError
from exarl.learning.exploration import EVALUATION
from exarl.records.directory import RunDirectory
from exarl.run.residual import controller_named

CONTROLLER = '''
import numpy as np

def swing(seen):
    """Pumps energy into the pendulum, and holds it near the top."""
    c, s, w = map(float, seen)
    if c > 0.8:
        return np.array([np.clip(-8 * np.arctan2(s, c) - 2 * w, -2, 2)])
    energy = w * w / 6 + 5 * (c - 1)
    return np.array([np.clip(-energy * np.sign(w or 1.0), -2, 2)])

class Sum:
    def reset(self):
        self.sum = 0.0
    def act(self, seen):
        self.sum += float(seen[1])
        return [0.05 * self.sum]
'''
SMALL: dict[str, Any] = {"env": "Pendulum-v1", "hidden": [8], "progress": False, "block_steps": 16,
                         "envs_per_actor": 1, "total_steps": 64, "n_steps": 40}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("plain_controllers.py").write_text(CONTROLLER)


@pytest.mark.parametrize("agent", ["SAC-v0", "A2C-v0"])
def test_an_untrained_agent_begins_near_the_controllers_level(agent: str) -> None:
    run = Path("run")
    words = {"learning_starts": 1000} if agent == "SAC-v0" else {"learning_rate": 1e-12}
    wide = {**SMALL, "hidden": [64, 64], "n_steps": 200}
    exarl.train(agent=agent, residual="plain_controllers:swing", run_dir=str(run), **words, **wide)
    results = [exarl.evaluate(each, env, episodes=10, seed=3) for each, env in
               [(str(run), None), ("plain_controllers:swing", "Pendulum-v1"),
                (agent, "Pendulum-v1")]]  # fmt: skip
    corrected, controller, alone = (result.reward_mean for result in results if result is not None)
    assert alone < controller - 500
    assert abs(corrected - controller) < 150


def test_a_loaded_policy_applies_the_controller() -> None:
    words = {**SMALL, "agent": "A2C-v0", "residual_scale": 0.5}
    exarl.train(run_dir="run", residual="plain_controllers:Sum", residual_observes=True, **words)
    policy = exarl.load("run")
    assert policy.observation_space.shape == (3,)
    assert policy.action_space.high == 2
    policy.reset()
    total = 0.0
    for seen in np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32):
        total += float(seen[1])
        base = 0.05 * total
        inner = np.append(seen, base / 2).astype(np.float32)[None]
        correction = float(policy.agent.action(inner)[0][0, 0])
        expected = np.clip(base + 0.5 * 2 * np.clip(correction, -1, 1), -2, 2)
        assert float(policy.act(seen)[0]) == pytest.approx(expected, abs=1e-5)
    with pytest.raises(ConfigError, match="corrects a controller"):
        stored_policy(RunDirectory(Path("run")), False)


def test_what_is_evaluated_is_what_was_trained() -> None:
    """The environment under the controller, with the agent, plays the same episodes as the bare one
    with the loaded policy."""
    words = {**SMALL, "agent": "A2C-v0", "residual_scale": 0.4, "residual_observes": True}
    exarl.train(run_dir="run", residual="plain_controllers:Sum", **words)
    played = exarl.evaluate("run", episodes=3)
    policy = exarl.load("run")
    env = Residual(
        gymnasium.make("Pendulum-v1"), controller_named("plain_controllers:Sum"), 0.4, True
    )
    episode = Episode(env, policy.adapter, 40, 0, 0, EVALUATION)
    expected = [play(greedy(policy.agent), episode).total_reward for _ in range(3)]
    assert played is not None
    np.testing.assert_allclose(played.rewards, expected, rtol=1e-6)


def test_a_run_goes_on_exactly() -> None:
    words = {**SMALL, "agent": "A2C-v0", "residual": "plain_controllers:Sum"}
    for name, steps in (("whole", 128), ("parts", 48)):
        exarl.train(run_dir=name, **{**words, "total_steps": steps})
    exarl.resume("parts", progress=False, total_steps=128)
    rows = [
        json.loads(Path(n, "result.jsonl").read_text().splitlines()[-1]) for n in ("whole", "parts")
    ]
    for column in ("episode_reward_mean", "value_loss", "timesteps_total"):
        assert rows[0][column] == rows[1][column], column


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"residual": "nowhere:Gone"}, "controller 'nowhere:Gone' cannot be imported"),
        ({"residual": "swing"}, "residual is module:name"),
        ({"env": "CartPole-v1"}, "residual corrects continuous actions"),
        ({"workflow": "fused"}, "residual cannot be used in workflow 'fused'"),
        ({"process_per_env": 2}, "residual needs process_per_env 1"),
    ],
)
def test_what_cannot_be_is_said(change: dict[str, Any], said: str) -> None:
    words = {**SMALL, "agent": "A2C-v0", "residual": "plain_controllers:swing", **change}
    with pytest.raises(ConfigError, match=said):
        exarl.train(run_dir="run", **words)
    assert not Path("run").exists()


def test_a_strangers_run_does_not_import_its_controller() -> None:
    exarl.train(run_dir="run", agent="A2C-v0", residual="plain_controllers:swing", **SMALL)
    stored = json.loads(Path("run/config.json").read_text())
    stored.pop("seal")
    Path("run/config.json").write_text(json.dumps(stored))
    with pytest.raises(ConfigError, match=r"residual 'plain_controllers:swing'.*--trust"):
        exarl.load("run")
