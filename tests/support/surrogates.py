"""Surrogates whose networks have not learned anything, and episodes of simple systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from exarl.envs.surrogate import LearnedEnv, dynamics_for, save_surrogate
from exarl.networks.dynamics import Scales

LIMIT = 30


class Episode(NamedTuple):
    """A recorded episode."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray


def untrained(seed: int = 0, discrete: bool = False, limit: int | None = LIMIT) -> LearnedEnv:
    """A surrogate that predicts small changes."""
    rng = np.random.default_rng(seed)
    seen = spaces.Box(-2.0, 2.0, (3,), np.float32)
    acted: Any = (
        spaces.Discrete(3, start=1) if discrete else spaces.Box(-1.0, 3.0, (2,), np.float32)
    )
    dynamics = dynamics_for(seen, acted, 3, (8,))
    params = dynamics.init(rng)
    params["1/b"][..., -1] = -5.0  # nothing terminates
    scaling = Scales(
        np.zeros(dynamics.inputs, np.float32),
        np.ones(dynamics.inputs, np.float32),
        np.zeros(dynamics.outputs, np.float32),
        np.full(dynamics.outputs, 0.1, np.float32),
    )
    starts = rng.uniform(-0.5, 0.5, (20, 3)).astype(np.float32)
    limits = np.array([[-1.0] * 3, [1.0] * 3], np.float32)
    return LearnedEnv(dynamics, params, scaling, starts, limits, seen, acted, limit, "Toy-v0", 100)


def written(folder: Path, **options: Any) -> Path:
    """The folder with such a surrogate in it."""
    save_surrogate(untrained(**options), folder, {})
    return folder


def oscillator(seed: int, episodes: int = 20, steps: int = 40) -> list[Episode]:
    """A driven oscillator: position and velocity, whose reward is minus the energy."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(episodes):
        seen, rewards = [rng.normal(size=2)], []
        actions = rng.uniform(-1, 1, (steps, 1)).astype(np.float32)
        for (force,) in actions:
            x, v = seen[-1]
            v = v + 0.1 * (force - x)
            seen.append(np.array([x + 0.1 * v, v]))
            rewards.append(-0.5 * float(seen[-1] @ seen[-1]))
        ends = np.zeros(steps, bool)
        cut = ends.copy()
        cut[-1] = True
        made.append(
            Episode(np.array(seen, np.float32), actions, np.array(rewards, np.float32), ends, cut)
        )
    return made
