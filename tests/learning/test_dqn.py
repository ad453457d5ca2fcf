"""DQN reaches a stated reward within a stated number of steps, as a user would train it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import exarl


def trained(folder: Path, **parameters: Any) -> Any:
    result = exarl.train(output_dir=str(folder), progress=False, reward_window=30, **parameters)
    assert result is not None
    return result


@pytest.mark.parametrize("seed", [0, 1])
def test_balances_the_pole(tmp_path: Path, seed: int) -> None:
    """CartPole-v1: 150 steps upright, mean of 30 episodes, within 12 000 steps (chance: 22)."""
    result = trained(
        tmp_path,
        env="CartPole-v1",
        seed=seed,
        total_steps=12_000,
        target_reward=150,
        envs_per_actor=2,
        block_steps=16,
        learning_rate=1e-3,
        batch_size=64,
        epsilon_steps=4000,
        epsilon_min=0.02,
        learning_starts=500,
        updates_per_step=0.5,
        tau=0.01,
        hidden=[64, 64],
    )
    assert result.reason == "target_reward", result.summary


@pytest.mark.parametrize("variant", [{}, {"dueling": True, "n_step": 3}], ids=["plain", "dueling"])
def test_crosses_the_frozen_lake(tmp_path: Path, variant: dict[str, Any]) -> None:
    """FrozenLake-v1 without slipping: 95 % of 30 episodes reach the goal, within 8 000 steps."""
    result = trained(
        tmp_path,
        env="FrozenLake-v1",
        total_steps=8000,
        target_reward=0.95,
        envs_per_actor=4,
        block_steps=8,
        learning_rate=2e-3,
        gamma=0.95,
        batch_size=32,
        epsilon_steps=4000,
        epsilon_min=0.0,
        learning_starts=200,
        updates_per_step=0.5,
        tau=0.02,
        hidden=[32],
        **{"env.is_slippery": False},
        **variant,
    )
    assert result.reason == "target_reward", result.summary
