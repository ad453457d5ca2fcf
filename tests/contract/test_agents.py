"""What every registered agent promises: one body, all agents.

A new agent adds its ``Case``: parameters with which it learns the toys in seconds, and how it tells
the value of an observation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers_envs import Constant, Drift, Identity
from helpers_learning import (
    adapter_of,
    assert_same_arrays,
    assert_same_block,
    learn,
    make_agent,
    through_storage,
)

from exarl import registry
from exarl.errors import CheckpointError

GAMMA, HORIZON = 0.9, 5


@dataclass(frozen=True)
class Case:
    """How to exercise one agent."""

    quick: dict[str, Any]
    identity: dict[str, Any]
    identity_blocks: int
    constant: dict[str, Any]
    constant_blocks: int
    value: Callable[[Any, np.ndarray], float]


def dqn_value(agent: Any, observation: np.ndarray) -> float:
    return float(agent.q_values(np, agent._params, observation[None]).max())


CASES = {
    "DQN-v0": Case(
        quick={"learning_starts": 30, "batch_size": 8, "updates_per_step": 0.25},
        identity={
            "learning_starts": 64,
            "batch_size": 32,
            "learning_rate": 5e-3,
            "epsilon_steps": 600,
            "updates_per_step": 0.5,
        },
        identity_blocks=20,
        constant={
            "learning_starts": 0,
            "batch_size": 32,
            "gamma": GAMMA,
            "loss": "mse",  # the Huber loss would settle nearer the median of the targets
            "learning_rate": 5e-3,
            "tau": 0.05,
            "epsilon_min": 1.0,
        },
        constant_blocks=30,
        value=dqn_value,
    ),
}


@pytest.fixture(params=registry.agents.ids())
def id(request: pytest.FixtureRequest) -> str:
    assert request.param in CASES, f"give {request.param} a Case in {__file__}"
    name: str = request.param
    return name


def constant_value(id: str, length: int | None, limit: int | None) -> float:
    case = CASES[id]
    agent, _ = learn(
        lambda _: Constant(length),
        id=id,
        blocks=case.constant_blocks,
        steps=20,
        limit=limit,
        **case.constant,
    )
    return case.value(agent, np.ones(1, np.float32))


def test_same_seed_same_run_another_seed_another(id: str) -> None:
    runs = [
        learn(lambda _: Drift(), id=id, blocks=6, limit=20, seed=seed, **CASES[id].quick)
        for seed in (1, 1, 2)
    ]
    (one, blocks), (same, same_blocks), (other, _) = runs
    for block, again in zip(blocks, same_blocks, strict=True):
        assert_same_block(block, again)
    np.testing.assert_array_equal(one.get_weights(), same.get_weights())
    assert np.abs(one.get_weights() - other.get_weights()).max() > 1e-3


def test_a_restored_learner_continues_as_if_nothing_had_happened(id: str) -> None:
    learner, blocks = learn(lambda _: Drift(), id=id, blocks=6, limit=20, **CASES[id].quick)
    stored = through_storage(*learner.state())
    again = make_agent(learner.spec, id=id, seed=9, learner=True, **CASES[id].quick)
    again.restore(*stored)
    for block in blocks[:3]:
        assert learner.train(block) == again.train(block)
    np.testing.assert_array_equal(learner.get_weights(), again.get_weights())
    assert_same_arrays(learner.state()[0], again.state()[0])


def test_saved_weights_carry_the_policy(id: str, tmp_path: Path) -> None:
    learner, blocks = learn(lambda _: Drift(), id=id, blocks=4, limit=20, **CASES[id].quick)
    learner.save(tmp_path / "weights.safetensors")
    actor = make_agent(learner.spec, id=id, seed=9, **CASES[id].quick)
    seen = np.concatenate([block.observations[:-1, 0] for block in blocks])
    before = actor.action(seen)[0]
    actor.load(tmp_path / "weights.safetensors")
    np.testing.assert_array_equal(actor.action(seen)[0], learner.action(seen)[0])
    assert not np.array_equal(before, actor.action(seen)[0])
    with pytest.raises(CheckpointError):
        actor.load(tmp_path / "no such file")


def test_training_reports_what_the_agent_declares(id: str) -> None:
    learner, blocks = learn(lambda _: Drift(), id=id, blocks=4, limit=20, **CASES[id].quick)
    metrics = learner.train(blocks[0])
    assert metrics.pop("updates") >= 1
    assert set(metrics) <= set(learner.metrics)
    assert all(np.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("seed", range(3))
def test_learns_the_identity_in_seconds(id: str, seed: int) -> None:
    """The observation names the action that is rewarded; chance gets a quarter of it."""
    case = CASES[id]
    agent, blocks = learn(
        lambda _: Identity(), id=id, blocks=case.identity_blocks, seed=seed, **case.identity
    )
    assert blocks[0].rewards.mean() < 0.5
    assert agent.action(np.eye(4, dtype=np.float32))[0].tolist() == [0, 1, 2, 3]


def test_a_reward_cut_by_a_time_limit_has_its_full_value(id: str) -> None:
    """Truncation bootstraps: V = r / (1 - gamma), however short the episodes are cut."""
    value = constant_value(id, length=None, limit=HORIZON)
    assert value == pytest.approx(1 / (1 - GAMMA), rel=0.05)


def test_a_reward_that_ends_has_the_value_of_its_horizon(id: str) -> None:
    """Termination does not bootstrap. The steps of an episode look alike, so their one value lies
    between the mean of their returns and the fixed point of one-step bootstrapping."""
    value = constant_value(id, length=HORIZON, limit=None)
    returns = [(1 - GAMMA**k) / (1 - GAMMA) for k in range(1, HORIZON + 1)]
    assert 0.95 * np.mean(returns) < value < 1.05 / (1 - GAMMA * (1 - 1 / HORIZON))


def test_acting_alone_needs_no_learner(id: str) -> None:
    adapter = adapter_of(Drift())
    agent = make_agent(adapter.spec, id=id)
    actions, recorded = agent.action(np.zeros((3, 2), np.float32))
    assert np.shape(actions)[0] == 3
    assert set(recorded) == set(agent.recorded)
