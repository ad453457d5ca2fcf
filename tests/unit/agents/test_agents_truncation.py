"""Truncation bootstraps and termination does not, also through windows of several steps."""

from __future__ import annotations

import numpy as np
import pytest
from support.envs import Constant
from support.learning import learn

GAMMA, HORIZON, WINDOW = 0.9, 5, 3


def learned_value(length: int | None, limit: int | None) -> float:
    agent, _ = learn(
        lambda _: Constant(length),
        blocks=40,
        steps=4 * HORIZON - 1,  # some windows begin in one block and end in the next
        limit=limit,
        n_step=WINDOW,
        gamma=GAMMA,
        loss="mse",
        double=False,
        dueling=True,
        learning_starts=0,
        batch_size=64,
        learning_rate=5e-3,
        tau=0.05,
        epsilon_min=1.0,
    )
    return float(agent.policy.acting.forward("q", np.ones((1, 1), np.float32), None)[0].max())


def short(steps: int) -> float:
    """The value of this many rewards of 1."""
    return (1 - GAMMA**steps) / (1 - GAMMA)


def test_a_cut_episode_is_worth_as_much_as_an_endless_one() -> None:
    assert learned_value(None, HORIZON) == pytest.approx(1 / (1 - GAMMA), rel=0.05)


def test_a_terminating_one_is_worth_its_horizon() -> None:
    """All steps look alike, so V is the mean of their targets: of five windows two are full, three
    are short because the episode ends in them."""
    full = HORIZON - WINDOW
    rewards = full * short(WINDOW) + sum(short(k) for k in range(1, WINDOW + 1))
    expected = rewards / (HORIZON - full * GAMMA**WINDOW)
    assert learned_value(HORIZON, None) == pytest.approx(expected, rel=0.05)
