"""A cue that was shown ten steps ago: with a memory it is recalled, without one it is guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exarl import ExaLearner
from exarl.acting.evaluation import greedy, play
from exarl.envs.episode import Episode
from exarl.learning.exploration import EVALUATION
from exarl.records.checkpoint import load_newest
from exarl.run.build import build_agent, build_episode
from exarl.run.configure import configure

PPO: dict[str, Any] = {
    "agent": "PPO-v0",
    "envs_per_actor": 16,
    "block_steps": 40,
    "learning_rate": 2e-3,
    "gamma": 0.95,
    "entropy_scale": 0.01,
    "total_steps": 32_000,
}
A2C = {**PPO, "agent": "A2C-v0", "block_steps": 20, "learning_rate": 3e-3, "total_steps": 140_000}
DQN: dict[str, Any] = {
    "agent": "DQN-v0",
    "envs_per_actor": 4,
    "block_steps": 20,
    "batch_size": 32,
    "updates_per_step": 0.2,
    "learning_rate": 2e-3,
    "gamma": 0.95,
    "epsilon_steps": 4_000,
    "learning_starts": 500,
    "total_steps": 10_000,
}


def recalled(folder: Path, seed: int, **words: Any) -> float:
    """The part of 40 cues that the greedy policy names after training."""
    chosen = {"env": "ExaRecall-v0", "seed": seed, "run_dir": str(folder / "run"), **words}
    ExaLearner(argv=[], serial=True, progress=False, **chosen).run()
    configuration = configure(overrides=chosen)
    env, adapter, limit = build_episode(configuration)
    agent = build_agent(configuration, adapter.spec)
    stored = load_newest(folder / "run" / "checkpoints")
    assert stored is not None
    agent.set_weights(stored.arrays["agent"]["weights"])
    episode = Episode(env, adapter, limit, seed, 0, kind=EVALUATION)
    return float(np.mean([play(greedy(agent), episode).total_reward for _ in range(40)]))


@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_ppo_recalls(seed: int, tmp_path: Path) -> None:
    assert recalled(tmp_path, seed, model_type="LSTM", **PPO) > 0.9


@pytest.mark.slow
def test_without_a_memory_it_is_a_guess(tmp_path: Path) -> None:
    assert recalled(tmp_path, 1, model_type="MLP", **PPO) < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("words", [A2C, DQN], ids=["A2C", "DQN"])
def test_others_recall(words: dict[str, Any], seed: int, tmp_path: Path) -> None:
    assert recalled(tmp_path, seed, model_type="LSTM", **words) > 0.9
