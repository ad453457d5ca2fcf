"""The exponent of the importance weights grows linearly from priority_beta to 1, and stays there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.dqn import PLAIN, SPEC, blocks
from support.learning import make_agent, through_storage

UPDATES = 4  # per block: 16 steps, a quarter of an update each
RATED = {**PLAIN, "priority_scale": 0.8, "learning_rate": 0.2}


def learner(beta: float, updates: int, place: str) -> Any:
    chosen = {"priority_beta": beta, "priority_updates": updates, "replay_device": place}
    return make_agent(SPEC, learner=True, **RATED, **chosen)


def weights_after(agent: Any, state: Any, number: int) -> np.ndarray:
    """The weights of an agent that continues from ``state`` with one more block."""
    agent.restore(*through_storage(*state))
    agent.train(blocks(1, first=number)[0])
    weights: np.ndarray = agent.get_weights()
    return weights


@pytest.mark.parametrize("place", ["host", "device"])
@pytest.mark.parametrize(("trained", "beta"), [(1, 0.55), (2, 0.7), (4, 1.0), (5, 1.0)])
def test_the_exponent_follows_the_updates_made(place: str, trained: int, beta: float) -> None:
    growing = learner(0.4, 4 * UPDATES, place)
    for block in blocks(trained):
        growing.train(block)
    state = growing.state()
    found = weights_after(growing, state, trained)
    constant = weights_after(learner(beta, 10**7, place), state, trained)
    other = weights_after(learner(beta - 0.1, 10**7, place), state, trained)
    error, wrong = np.abs(found - constant).max(), np.abs(found - other).max()
    assert error < 1e-5
    assert wrong > 10 * error
    assert wrong > 1e-4
