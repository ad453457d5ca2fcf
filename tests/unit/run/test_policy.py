"""A policy loaded from its run: the actions that the run's own evaluation takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import exarl
from exarl.acting.evaluation import greedy
from exarl.envs.episode import Episode
from exarl.errors import ConfigError
from exarl.run.policy import TrainedPolicy

QUICK: dict[str, Any] = {
    "total_steps": 64,
    "block_steps": 32,
    "progress": False,
    "hidden": [8],
    "envs_per_actor": 1,
}


class Tank(gymnasium.Env[Any, Any]):
    """Level and a switch as a Dict; the valve is a Box with bounds of its own."""

    observation_space = spaces.Dict(level=spaces.Box(0, 9, (2,)), open=spaces.Discrete(2))
    action_space = spaces.Box(np.array([10.0, -3.0]), np.array([20.0, 3.0]), dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t == 9, False, {}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def trained(**parameters: Any) -> Path:
    result = exarl.train(**(QUICK | parameters))
    assert result is not None
    return result.run_dir


def test_actions_are_in_the_units_of_the_environment() -> None:
    policy = exarl.load(trained(env=Tank, agent="SAC-v0", learning_starts=16))
    assert policy.steps == 64
    seen = {"level": np.array([1.0, 8.0], np.float32), "open": 1}
    assert policy.action_space.contains(policy.act(seen))
    other = {"level": np.array([2.0, 0.0], np.float32), "open": 0}
    both = policy.act([seen, other])
    assert both.shape == (2, 2)
    np.testing.assert_allclose(both[0], policy.act(seen), rtol=1e-5)
    np.testing.assert_allclose(both[1], policy.act(other), rtol=1e-5)


def test_the_environment_is_not_needed() -> None:
    run = trained(env=Tank, agent="PPO-v0")
    del gymnasium.registry["local/Tank-v0"]
    assert exarl.load(run).act(Tank.observation_space.sample()).shape == (2,)


def test_runs_without_stored_spaces_make_their_environment() -> None:
    run = trained(env="CartPole-v1", agent="PPO-v0")
    manifest = run / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"spaces"', '"places"'))
    assert exarl.load(run).act(np.zeros(4, np.float32)) in (0, 1)


@pytest.mark.parametrize(
    ("env", "parameters"),
    [
        ("CartPole-v1", {"agent": "DQN-v0", "frame_stack": 3}),
        ("CartPole-v1", {"agent": "A2C-v0", "model_type": "LSTM"}),
        ("Pendulum-v1", {"agent": "DQN-v0", "nactions": 7}),
    ],
)
def test_it_acts_like_the_evaluation_of_training(env: str, parameters: dict[str, Any]) -> None:
    """The oracle is the agent on encoded observations, as evaluations during training play it."""
    run = trained(env=env, **parameters)
    policy = exarl.load(run)
    expected = actions_of_episode(policy, env)
    own = gymnasium.make(env)
    seen, _ = own.reset(seed=5)
    for action in expected:
        chosen = policy.act(seen)
        np.testing.assert_allclose(chosen, action, rtol=1e-6)
        seen, *_ = own.step(chosen)


def actions_of_episode(policy: TrainedPolicy, env: str, steps: int = 12) -> list[Any]:
    episode = Episode(gymnasium.make(env), policy.adapter, None, 0, 0)
    episode.begin()
    seen, _ = episode.env.reset(seed=5)
    stacked = policy.adapter.frames
    episode.observation = np.stack([seen] * stacked) if stacked > 1 else seen
    choose, actions = greedy(policy.agent), []
    for _ in range(steps):
        action = choose(episode)
        actions.append(policy.adapter.decode(action))
        *_, terminated, truncated = episode.step(action)
        if terminated or truncated:
            break
    return actions


def test_reset_forgets_of_all_or_of_some() -> None:
    policy = exarl.load(trained(env="CartPole-v1", agent="A2C-v0", model_type="LSTM"))
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(6, 2, 4)).astype(np.float32)
    memories = []
    for start in (None, [0]):
        policy.reset()
        for row in seen[:3]:
            policy.act(row)
        policy.reset(start)
        policy.act(seen[3])
        memories.append({name: array.copy() for name, array in policy._memory.items()})
    policy.reset()
    for row in seen[:4]:
        policy.act(row)
    for name, array in policy._memory.items():
        np.testing.assert_allclose(memories[1][name][0], memories[0][name][0], rtol=1e-5)
        np.testing.assert_allclose(memories[1][name][1], array[1], rtol=1e-5)
        assert not np.allclose(memories[0][name][1], array[1])


def test_a_batch_of_another_size_needs_a_reset() -> None:
    policy = exarl.load(trained(env="CartPole-v1", agent="A2C-v0", model_type="LSTM"))
    policy.act(np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="remembers 1 environments, not 3: call reset"):
        policy.act(np.zeros((3, 4), np.float32))
    policy.reset()
    assert policy.act(np.zeros((3, 4), np.float32)).shape == (3,)


def test_what_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match="no run directory"):
        exarl.load("nowhere")
    run = trained(env="CartPole-v1", agent="PPO-v0")
    with pytest.raises(ConfigError, match="no best policy"):
        exarl.load(run, best=True)
    with pytest.raises(ConfigError, match="no checkpoint of step 7"):
        exarl.load(run, checkpoint=7)
    with pytest.raises(ValueError, match=r"shape \(3,\); the policy takes \(4,\)"):
        exarl.load(run).act(np.zeros(3, np.float32))
