"""PPO with a convolutional network learns Tetris from images, with the packaged settings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import exarl
from exarl.science.tetris.env import ExaTetris


def random_return(games: int) -> float:
    env, rng, totals = ExaTetris(), np.random.default_rng(0), []
    for seed in range(games):
        env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            _, reward, over, _, _ = env.step(int(rng.integers(6)))
            total += reward
        totals.append(total)
    return float(np.mean(totals))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [0, 1])
def test_ppo_plays_twice_as_long_as_chance(seed: int, tmp_path: Path) -> None:
    result = exarl.train(
        agent="PPO-v0",
        env="ExaTetris-v0",
        model_type="CNN",
        total_steps=200_000,
        target_reward=2 * random_return(100),
        seed=seed,
        progress=False,
        output_dir=str(tmp_path),
    )
    assert result is not None
    assert result.reason == "target_reward", result.summary
