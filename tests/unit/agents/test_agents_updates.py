"""How many updates a block is worth, and when the first is made."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from support.learning import continuous_spec, discrete_spec, make_agent, random_block

STEPS = 16  # of a block
SPECS = {"DQN-v0": discrete_spec(), "SAC-v0": discrete_spec(), "TD3-v0": continuous_spec()}
SMALL = {"batch_size": 4, "replay_capacity": 64}


def updates(id: str, count: int, **parameters: Any) -> list[int]:
    """What ``train`` reports for each of ``count`` blocks."""
    spec = SPECS.get(id, discrete_spec())
    agent = make_agent(spec, id=id, learner=True, **parameters)
    recorded = {name: np.zeros((8, 2), kind.dtype) for name, kind in agent.recorded.items()}
    blocks = (random_block(spec, seed) for seed in range(count))
    trained = [agent.train(dataclasses.replace(block, recorded=recorded)) for block in blocks]
    return [int(metrics["updates"]) for metrics in trained]


@pytest.mark.parametrize("id", SPECS)
@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        (0, [4, 4, 4]),
        (2 * STEPS - 1, [0, 4, 4]),
        (2 * STEPS, [0, 4, 4]),
        (2 * STEPS + 1, [0, 0, 4]),
    ],
)
def test_the_first_updates_follow_the_block_that_completes_learning_starts(
    id: str, starts: int, expected: list[int]
) -> None:
    found = updates(id, 3, learning_starts=starts, updates_per_step=0.25, **SMALL)
    assert found == expected


@pytest.mark.parametrize(("per_step", "expected"), [(0.001, 1), (0.09, 1), (0.1, 2), (1.0, STEPS)])
def test_updates_per_step_are_rounded_and_at_least_one(per_step: float, expected: int) -> None:
    assert updates("DQN-v0", 1, learning_starts=0, updates_per_step=per_step, **SMALL) == [expected]


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (3, 1), (2, 4)])
def test_ppo_goes_over_a_block_in_minibatches(epochs: int, minibatches: int) -> None:
    chosen = {"epochs": epochs, "minibatches": minibatches}
    assert updates("PPO-v0", 2, **chosen) == [epochs * minibatches] * 2


def test_a2c_makes_one_update_of_a_block() -> None:
    assert updates("A2C-v0", 2) == [1, 1]
