"""Layer normalisation in every agent: learned as acted, in float32 and bfloat16, with all gradients."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from support.learning import continuous_spec, discrete_spec, make_agent, random_block

from exarl.export import evaluate

REPLAY = {"batch_size": 32, "learning_starts": 0, "updates_per_step": 1 / 16}
AGENTS: dict[str, dict[str, Any]] = {
    "DQN-v0": REPLAY,
    "DDPG-v0": REPLAY,
    "TD3-v0": REPLAY | {"policy_delay": 1},
    "SAC-v0": REPLAY,
    "A2C-v0": {},
    "A3C-v0": {},
    "PPO-v0": {"epochs": 1, "minibatches": 1},
}
USUAL = {("DQN-v0", "bfloat16"), ("SAC-v0", "float32"), ("PPO-v0", "float32")}


def trained(id: str, precision: str = "float32", **others: Any) -> tuple[Any, dict[str, Any]]:
    """An agent after updates on one block, and what they reported."""
    spec = (continuous_spec if id in ("DDPG-v0", "TD3-v0", "SAC-v0") else discrete_spec)((5,))
    words = {"hidden": (16, 8), "precision": precision, **AGENTS[id], **others}
    agent = make_agent(spec, id=id, learner=True, **words)
    block = random_block(spec, 0, steps=8, width=4)
    for name, kept in agent.recorded.items():
        block.recorded[name] = kept.zeros(*block.rewards.shape)
    return agent, agent.train(block)


@pytest.mark.parametrize(
    ("id", "precision"),
    [
        pytest.param(id, precision, marks=() if (id, precision) in USUAL else pytest.mark.slow)
        for id in AGENTS
        for precision in ("float32", "bfloat16")
    ],
)
def test_updates_reach_every_layer(id: str, precision: str) -> None:
    agent, metrics = trained(id, precision, layer_norm=True)
    assert all(np.isfinite(float(value)) for value in metrics.values())
    learned = {n: np.asarray(a) for n, a in agent.train_state.params.items()}
    still = {n for n, array in learned.items() if np.array_equal(array, agent._first[n])}
    assert not still
    assert all(array.dtype == np.float32 for array in learned.values())


@pytest.mark.parametrize(
    "id", ["DQN-v0", *(pytest.param(id, marks=pytest.mark.slow) for id in ("TD3-v0", "PPO-v0"))]
)
def test_what_acts_is_what_learns(id: str) -> None:
    agent, _ = trained(id, layer_norm=True)
    agent.set_weights(agent.get_weights())
    seen = np.random.default_rng(1).normal(size=(9, 5)).astype(np.float32)
    name = agent.algorithm.acts_with[0]
    ours, _ = agent.policy.acting.forward(name, seen, None)
    theirs = agent.algorithm.apply(jnp, agent.train_state.params, name, jnp.asarray(seen))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    plain = make_agent(agent.spec, id=id, hidden=(16, 8), **AGENTS[id])
    plain.set_weights(agent.get_weights())
    assert np.abs(plain.policy.acting.forward(name, seen, None)[0] - ours).max() > 1e-3
    greedy = np.asarray(agent.action(seen)[0], np.float32).reshape(9, -1)
    np.testing.assert_allclose(evaluate(agent.exported(), seen), greedy, atol=1e-5)
