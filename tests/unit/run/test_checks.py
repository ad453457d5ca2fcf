"""What is refused before anything is built."""

from __future__ import annotations

from typing import Any

import pytest

from exarl.errors import ConfigError
from exarl.run.checks import check_configuration, plan
from exarl.run.configure import configure


@pytest.mark.parametrize(
    ("chosen", "ranks", "message"),
    [
        (
            {"n_step": 9, "block_steps": 8, "model_type": "LSTM"},
            1,
            "n_step=9 needs block_steps >= n_step, not 8",
        ),
        ({"workflow": "fused"}, 2, "workflow 'fused' runs on one rank, not on 2"),
        ({"learner_procs": 2}, 3, "workflow 'sync' has one learner: learner_procs must be 1"),
        (
            {"workflow": "async", "learner_procs": 2, "replay_device": "device"},
            4,
            "replay_device must be host with several learners",
        ),
        ({"learning_rate_updates": 1, "total_steps": 9}, 1, "are two schedules"),  # as packaged
        ({"optimizer": "sgd", "betas": [0.9, 0.99]}, 1, "optimizer 'sgd' has no betas"),
        (
            {"workflow": "async", "agent": "PPO-v0", "vtrace": False},
            2,
            "leave vtrace on or set max_policy_lag 0",
        ),
    ],
)
def test_what_cannot_work_is_refused(chosen: dict[str, Any], ranks: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_configuration(configure(overrides=chosen), ranks)


@pytest.mark.parametrize(
    ("chosen", "ranks"),
    [
        ({"n_step": 9, "block_steps": 8}, 1),
        ({"n_step": 8, "block_steps": 8, "model_type": "LSTM"}, 1),
        ({"workflow": "async", "learner_procs": 2}, 4),
        ({"workflow": "async", "agent": "PPO-v0", "vtrace": False, "max_policy_lag": 0}, 2),
        ({"agent": "PPO-v0", "vtrace": False}, 2),
    ],
)
def test_what_works_is_accepted(chosen: dict[str, Any], ranks: int) -> None:
    configuration = configure(overrides=chosen)
    check_configuration(configuration, ranks)
    assert plan(configuration, ranks).world == ranks
