"""The targets and losses of the quantile critics, by hand and against RLax."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
from support.learning import continuous_spec, discrete_spec, make_agent

from exarl.types import Arrays

CONTINUOUS, DISCRETE = continuous_spec((3,), 2), discrete_spec((3,), 4)


def rows(seed: int, size: int = 16) -> Arrays:
    rng = np.random.default_rng(seed)
    shapes = {"observation": 3, "next_observation": 3, "noise": 2, "next_noise": 2, "action": 2}
    made = {name: rng.normal(size=(size, n)) for name, n in shapes.items()}
    made |= {"reward": rng.normal(size=size), "discount": rng.random(size)}
    return {name: array.astype("f4") for name, array in made.items()}


def quantiles(agent: Any, name: str, seen: np.ndarray, actions: np.ndarray) -> np.ndarray:
    own = {n.removeprefix(f"{name}/"): a for n, a in agent._first.items() if n.startswith(name)}
    found: np.ndarray = agent.algorithm.networks[name].apply(np, own, seen, actions)
    return found


def test_targets_are_the_quantiles_of_all_critics_but_the_largest() -> None:
    agent = make_agent(
        CONTINUOUS, id="TQC-v0", critics=3, quantiles=7, quantiles_dropped=2, alpha=0.3
    )
    batch, params = rows(0), agent._first
    seen = batch["next_observation"]
    actions, log_p = agent.algorithm.soft.policy(np, params, seen, batch["next_noise"])
    pooled = np.concatenate([quantiles(agent, q, seen, actions) for q in ("q1", "q2", "q3")], 1)
    kept = np.array([sorted(row)[:15] for row in pooled])
    expected = batch["reward"][:, None] + batch["discount"][:, None] * (kept - 0.3 * log_p[:, None])
    ours = agent.algorithm.targets(np, params, params, batch)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_the_losses_of_tqc() -> None:
    agent = make_agent(CONTINUOUS, id="TQC-v0", quantiles=7, alpha=0.3)
    batch, params, state = rows(1), agent._first, agent
    state.params = state.target = params
    targets = agent.algorithm.targets(np, params, params, batch)
    levels = jnp.tile((jnp.arange(7) + 0.5) / 7, (16, 1))
    one = jax.vmap(partial(rlax.quantile_regression_loss, huber_param=1.0))
    found = [
        one(jnp.array(quantiles(agent, q, batch["observation"], batch["action"])), levels, targets)
        for q in ("q1", "q2")
    ]
    loss, _ = agent.algorithm.critic_loss(np, agent.hyper, params, state, batch)
    assert loss == pytest.approx(float(np.mean(found[0]) + np.mean(found[1])), rel=1e-4)
    actions, log_p = agent.algorithm.soft.policy(np, params, batch["observation"], batch["noise"])
    values = [quantiles(agent, q, batch["observation"], actions).mean(1) for q in ("q1", "q2")]
    loss, _ = agent.algorithm.policy_loss(np, agent.hyper, params, state, batch)
    assert loss == pytest.approx(np.mean(0.3 * log_p - np.mean(values, 0)), rel=1e-4)


@pytest.mark.parametrize("double", [True, False])
def test_qrdqn_learns_what_rlax_says(double: bool) -> None:
    agent = make_agent(DISCRETE, id="QRDQN-v0", quantiles=5, double=double)
    rng, batch = np.random.default_rng(3), rows(2)
    batch["action"] = rng.integers(4, size=16)
    state = agent
    state.params = agent._first
    state.target = {
        n: a + rng.normal(scale=0.5, size=a.shape).astype("f4") for n, a in agent._first.items()
    }
    algorithm, ahead = agent.algorithm, batch["next_observation"]

    def by_level(params: Arrays, seen: np.ndarray) -> Any:
        return jnp.array(algorithm.quantiles(np, params, seen)).swapaxes(1, 2)  # [N, K, A]

    levels = jnp.tile((jnp.arange(5) + 0.5) / 5, (16, 1))
    target = by_level(state.target, ahead)
    expected = jax.vmap(partial(rlax.quantile_q_learning, huber_param=1.0))(
        by_level(state.params, batch["observation"]),
        levels,
        jnp.array(batch["action"]),
        jnp.array(batch["reward"]),
        jnp.array(batch["discount"]),
        by_level(state.params, ahead) if double else target,
        target,
    )
    loss, metrics = algorithm.loss(np, agent.hyper, state.params, state, batch)
    assert loss == pytest.approx(float(expected.mean()), rel=1e-4)
    weighted = {**batch, "weight": rng.random(16).astype("f4")}
    loss, metrics = algorithm.loss(np, agent.hyper, state.params, state, weighted)
    assert loss == pytest.approx(float((weighted["weight"] * expected).mean()), rel=1e-4)
    assert metrics["priority"].shape == (16,)
