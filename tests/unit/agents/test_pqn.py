"""PQN: one update against its definition, masks, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.learning import continuous_spec, discrete_spec, make_agent, random_block

from exarl import registry
from exarl.config import LearnerConfig
from exarl.errors import ConfigError

SPEC = discrete_spec((3,), 4)
GAMMA, LAMBDA = 0.9, 0.65


def values(params: dict[str, Any], seen: np.ndarray) -> np.ndarray:
    hidden = np.maximum(seen @ params["q/0/w"] + params["q/0/b"], 0)
    return np.asarray(hidden @ params["q/1/w"] + params["q/1/b"], float)


def test_one_update_is_that_of_the_definition() -> None:
    agent = make_agent(
        SPEC,
        id="PQN-v0",
        learner=True,
        gamma=GAMMA,
        q_lambda=LAMBDA,
        epochs=1,
        minibatches=1,
        optimizer="sgd",
        learning_rate=0.1,
        max_grad_norm=None,
    )
    before = {n: np.asarray(a) for n, a in agent.train_state.params.items()}
    block = random_block(SPEC, 3, steps=8, width=3)
    loss = float(agent.train(block)["loss"])
    ahead = values(before, block.next_observations()).max(-1)
    targets = np.zeros(block.rewards.shape)
    for t, b in reversed([*np.ndindex(*targets.shape)]):
        bootstrap = ahead[t, b]
        if not block.ended[t, b] and t + 1 < len(targets):
            bootstrap = (1 - LAMBDA) * bootstrap + LAMBDA * targets[t + 1, b]
        targets[t, b] = block.rewards[t, b] + GAMMA * (not block.terminated[t, b]) * bootstrap
    q = values(before, block.observations[:-1])
    errors = targets - np.take_along_axis(q, block.actions[..., None], -1)[..., 0]
    assert loss == pytest.approx((0.5 * errors**2).mean(), rel=1e-4)
    slopes = [errors[block.actions == action].sum() / errors.size for action in range(4)]
    moved = np.asarray(agent.train_state.params["q/1/b"]) - before["q/1/b"]
    np.testing.assert_allclose(moved, 0.1 * np.array(slopes), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("lags", [False, True])
def test_it_learns_from_its_present_policy_only(lags: bool) -> None:
    kind, run = registry.agents.load("PQN-v0"), LearnerConfig(agent="PQN-v0", workflow="async")
    if not lags:
        kind.check(kind.Config(), run, learners=1, lags=False)
        return
    with pytest.raises(ConfigError, match="learns only from its present policy"):
        kind.check(kind.Config(), run, learners=1, lags=True)


def test_what_cannot_learn_is_refused() -> None:
    with pytest.raises(ConfigError, match="PQN-v0 needs discrete actions"):
        make_agent(continuous_spec(), id="PQN-v0")
    agent = make_agent(SPEC, id="PQN-v0", learner=True, minibatches=100)
    with pytest.raises(ConfigError, match="minibatches=100 needs as many steps"):
        agent.train(random_block(SPEC, 0))
