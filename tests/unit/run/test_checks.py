"""What is refused before anything is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exarl.errors import ConfigError
from exarl.run.checks import check_configuration, plan
from exarl.run.configure import check_same_run, configure, configure_again
from exarl.run.start import create_run


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
        ({"workflow": "elastic", "listen": "here"}, 1, "listen is .HOST:.PORT, not 'here'"),
        ({"workflow": "elastic", "listen": "0", "learner_procs": 2}, 1, "learner_procs must be 1"),
        ({"workflow": "elastic", "listen": "0", "address": "auto"}, 1, "give one of them"),
        ({"workflow": "elastic", "listen": "0"}, 2, "runs on one rank, not on 2"),
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


def test_simulations_that_join_may_have_several_ranks() -> None:
    chosen = {"workflow": "elastic", "process_per_env": 2, "n_actors": 3}
    layout = plan(configure(overrides={**chosen, "listen": "0"}), 1)
    assert (layout.world, layout.actors, layout.process_per_env) == (7, 3, 2)
    with pytest.raises(ConfigError, match="process_per_env must be 1"):
        plan(configure(overrides=chosen), 1)


def test_a_run_may_go_on_at_another_address(tmp_path: Path) -> None:
    chosen = {"workflow": "elastic", "listen": "5756", "run_dir": str(tmp_path)}
    run = create_run(configure(overrides=chosen), {}, None)
    check_same_run(run, configure_again(run, ["--listen", "0.0.0.0:0", "--actor_timeout", "90"]))
    with pytest.raises(ConfigError, match="max_policy_lag"):
        check_same_run(run, configure_again(run, ["--max_policy_lag", "3"]))
