"""What learning from imagined transitions does to an agent."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.envs import Constant, Pushed
from support.learning import learn

QUICK: dict[str, Any] = {"learning_starts": 30, "batch_size": 8, "updates_per_step": 0.25}
SMALL: dict[str, Any] = {
    "model_hidden": (8,),
    "model_members": 3,
    "model_elites": 2,
    "model_batch_size": 16,
    "rollouts_per_step": 4,
}
DEVICE: dict[str, Any] = {"replay_device": "device", "replay_capacity": 1000}


def trained(make: Any, id: str, **parameters: Any) -> Any:
    return learn(lambda _: make(), id=id, blocks=6, limit=20, seed=1, **QUICK, **parameters)[0]


@pytest.mark.slow
@pytest.mark.parametrize("make", [Pushed, partial(Constant, None)])
def test_without_imagined_transitions_it_is_its_base(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nothing changes no model is better than that, and so none is used: the policy learns what
    SAC learns. Where batches are real by choice it does, too."""
    caplog.set_level(logging.INFO, "exarl.agents.dreams")
    words = {"real_ratio": 1.0} if make is Pushed else {}
    agent = trained(make, "MBPO-v0", **SMALL, **words)
    plain = trained(make, "SAC-v0", **DEVICE)
    np.testing.assert_array_equal(agent.get_weights(), plain.get_weights())
    told = [record.message for record in caplog.records]
    assert any("worse than that nothing changes" in line for line in told) is (make is not Pushed)


@pytest.mark.slow
def test_imagined_transitions_are_learned_from() -> None:
    agent = trained(Pushed, "MBPO-v0", **SMALL, model_learning_rate=0.01, model_updates_per_step=5)
    plain = trained(Pushed, "SAC-v0", **DEVICE)
    assert np.abs(agent.get_weights() - plain.get_weights()).max() > 1e-3
