"""Agents with an LSTM: the learner finds again what the actor computed step by step."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from support.envs import KeptDrift, Pushed
from support.learning import (
    adapter_of,
    assert_same_arrays,
    assert_same_block,
    collect,
    continuous_spec,
    discrete_spec,
    make_agent,
    make_rollout,
    through_storage,
)

from exarl.agents.algorithm import part as part_of
from exarl.agents.dqn import by_time
from exarl.errors import ConfigError
from exarl.learning.losses import huber
from exarl.learning.returns import n_step_returns
from exarl.types import Arrays, Block

WIDTH, STEPS, LIMIT = 3, 12, 7
DQN = {"learning_starts": 0, "batch_size": 4, "updates_per_step": 1 / 36}  # one update a block


def agent_for(id: str, env: Any = None, seed: int = 0, **parameters: Any) -> Any:
    """A learner that also acts, with weights that make its memory matter."""
    spec = adapter_of(env or KeptDrift(), "any", LIMIT).spec
    agent = make_agent(spec, id=id, seed=seed, units=6, **parameters)
    agent.set_weights(3 * agent.get_weights())
    agent.set_learner()
    return agent


def rollout_of(agent: Any, env: Any = KeptDrift) -> Any:
    return make_rollout(agent, lambda _: env(), range(WIDTH), steps=STEPS, limit=LIMIT)


def second_block(agent: Any, env: Any = KeptDrift) -> Block:
    """One that begins within episodes, and in which episodes end."""
    rollout = rollout_of(agent, env)
    collect(rollout)
    block = collect(rollout)
    assert block.ended[:-1].sum() >= WIDTH
    assert np.abs(block.recorded["memory/h"][0]).max() > 0.01
    return block


def by_steps(agent: Any, part: str, block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Outputs [T, B, ...] at each observation and at what followed it, in NumPy, one step at a
    time from the memory that the actor recorded."""
    network = agent.algorithm.networks[part]
    params = {n: np.asarray(a) for n, a in part_of(agent.train_state.params, part).items()}
    here, there = [], []
    for t, following in enumerate(block.next_observations()):
        memory = {name: block.recorded[f"memory/{name}"][t] for name in agent.memory}
        outputs, after = network.step(np, params, block.observations[t], memory)
        here.append(outputs)
        there.append(network.step(np, params, following, after)[0])
    return np.array(here), np.array(there)


@pytest.mark.parametrize(
    ("id", "env"), [("PPO-v0", KeptDrift), ("A2C-v0", KeptDrift), ("PPO-v0", Pushed)]
)
def test_the_learner_finds_the_probabilities_and_values_of_the_actor(id: str, env: Any) -> None:
    agent = agent_for(id, env())
    block = second_block(agent, env)
    inputs = agent.algorithm.rows(np, agent.hyper, block)
    prepare = jax.jit(partial(agent.algorithm.prepare, jax.numpy, agent.hyper))
    if id == "PPO-v0":
        inputs["index"] = np.zeros(0, int)
    data = prepare(agent.train_state, inputs)
    ratio = np.exp(np.asarray(data["log_prob"]) - block.recorded["log_prob"])
    np.testing.assert_allclose(ratio, 1, atol=1e-4)
    here, there = by_steps(agent, "policy", block)
    np.testing.assert_allclose(data["value"], here[..., -1], rtol=1e-4, atol=1e-4)
    following = jax.jit(partial(agent.algorithm.next_values, jax.numpy))(
        agent.train_state.params, inputs
    )
    np.testing.assert_allclose(following, there[..., -1], rtol=1e-4, atol=1e-4)
    forgotten = {**inputs, "memory/h": 0 * inputs["memory/h"], "memory/c": 0 * inputs["memory/c"]}
    wrong = prepare(agent.train_state, forgotten)
    assert np.abs(np.asarray(wrong["value"])[0] - here[0, :, -1]).max() > 1e-3


def test_minibatches_of_environments_keep_their_memory() -> None:
    """Updates too small to move the policy find it where it was."""
    agent = agent_for("PPO-v0", minibatches=WIDTH, epochs=2, learning_rate=1e-12)
    metrics = agent.train(second_block(agent))
    assert metrics["updates"] == 2 * WIDTH
    assert abs(metrics["kl"]) < 1e-6
    assert metrics["clip_fraction"] == 0


def test_more_minibatches_than_environments_are_refused() -> None:
    agent = agent_for("PPO-v0", minibatches=WIDTH + 1)
    with pytest.raises(ConfigError, match="environments"):
        agent.train(second_block(agent))


@pytest.mark.parametrize("id", ["PPO-v0", "A2C-v0", "DQN-v0"])
def test_a_memory_begins_with_its_episode(id: str) -> None:
    agent = agent_for(id)
    rollout = rollout_of(agent)
    first = collect(rollout)
    block = collect(rollout)
    for name in ("memory/h", "memory/c"):
        assert not first.recorded[name][0].any()
        whole = np.concatenate([first.recorded[name], block.recorded[name]])
        ended = np.concatenate([first.ended, block.ended])[:-1]
        assert ended.any()
        assert not whole[1:][ended].any()
        assert whole[1:][~ended].any(-1).all()


@pytest.mark.parametrize("id", ["PPO-v0", "DQN-v0"])
def test_a_memory_outlives_its_rollout(id: str) -> None:
    agent = agent_for(id)
    rollout, again = rollout_of(agent), rollout_of(agent)
    collect(rollout)
    state = rollout.state()
    stored = through_storage(state)[0]
    assert np.abs(stored["1/memory/h"]).max() > 0
    again.restore(stored)
    for _ in range(2):
        assert_same_block(collect(rollout), collect(again))
    assert_same_arrays({n: np.asarray(a) for n, a in state.items()}, stored)  # no views


@pytest.mark.parametrize("parameters", [{"n_step": 1}, {"n_step": 3, "dueling": True}])
def test_dqn_finds_the_values_and_targets_of_its_steps(parameters: dict[str, Any]) -> None:
    agent = agent_for("DQN-v0", double=False, gamma=0.9, **DQN, **parameters)
    block = second_block(agent)
    here, there = by_steps(agent, "q", block)
    if agent.config.dueling:
        here, there = (
            q[..., :1] + q[..., 1:] - q[..., 1:].mean(-1, keepdims=True) for q in (here, there)
        )
    ends = (block.terminated, block.truncated)
    returns, discounts, last = n_step_returns(np, block.rewards, *ends, 0.9, parameters["n_step"])
    expected = returns + discounts * np.take_along_axis(there.max(-1), last, 0)

    def learn(params: Any, rows: Arrays) -> Any:
        batch, xp = by_time(rows), jax.numpy
        targets = agent.algorithm.sequence_targets(xp, params, params, batch)
        return targets, agent.algorithm._along(xp, params, batch)[0]

    targets, values = jax.jit(learn)(
        agent.train_state.params, agent.algorithm.rows(np, agent.hyper, block)
    )
    np.testing.assert_allclose(values, here, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(targets, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("burn_in", [0, 5])
def test_the_first_steps_only_warm_the_memory_up(burn_in: int) -> None:
    ends = []
    for change in (0, 1, 2):  # nothing, the rewards of the first five steps, that of the sixth
        agent = agent_for("DQN-v0", burn_in=burn_in, **DQN)
        block = second_block(agent)
        rewards = block.rewards.copy()
        rewards[{0: slice(0), 1: slice(5), 2: slice(5, 6)}[change]] += 1
        agent.train(dataclasses.replace(block, rewards=rewards))
        ends.append(agent.get_weights())
    assert np.array_equal(ends[0], ends[1]) is (burn_in == 5)
    assert not np.array_equal(ends[0], ends[2])


@pytest.mark.parametrize("burn_in", [0, 5])
def test_no_gradient_passes_through_the_burn_in(burn_in: int) -> None:
    """It is what the later steps alone give, begun with the memory that the first ones made."""
    agent = agent_for("DQN-v0", burn_in=burn_in, **DQN)
    algorithm, state, xp = agent.algorithm, agent.train_state, jax.numpy
    batch = by_time(algorithm.rows(np, agent.hyper, second_block(agent)))
    targets = algorithm.sequence_targets(xp, state.params, state.target, batch)[burn_in:]
    after = algorithm._along(xp, state.params, batch)[1]
    begun = {f"memory/{n}": np.asarray(a[burn_in - 1]) for n, a in after.items() if burn_in}
    later = {n: a if n.startswith("memory/") else a[burn_in:] for n, a in batch.items()} | begun

    def by_hand(params: Any) -> Any:
        values = algorithm._along(xp, params, later)[0]
        errors = targets - xp.take_along_axis(values, later["action"][..., None], -1)[..., 0]
        return huber(xp, errors).mean()

    def ours(params: Any) -> Any:
        return algorithm.loss(xp, agent.hyper, params, state, by_time(batch))[0]

    value, grads = jax.jit(jax.value_and_grad(ours))(state.params)
    expected_value, expected = jax.jit(jax.value_and_grad(by_hand))(state.params)
    np.testing.assert_allclose(value, expected_value, rtol=1e-5)
    for name, array in expected.items():
        np.testing.assert_allclose(grads[name], array, rtol=1e-4, atol=1e-6)
        assert np.abs(array).max() > 1e-4


def test_a_burn_in_that_leaves_nothing_is_refused() -> None:
    agent = agent_for("DQN-v0", burn_in=STEPS, **DQN)
    with pytest.raises(ConfigError, match="burn_in"):
        agent.train(second_block(agent))


def test_agents_that_cannot_learn_with_a_memory_say_so() -> None:
    for id in ("DDPG-v0", "TD3-v0", "SAC-v0"):
        with pytest.raises(ConfigError, match="memory"):
            make_agent(continuous_spec(), id=id, units=4)
    with pytest.raises(ConfigError, match="memory"):
        make_agent(discrete_spec(), id="SAC-v0", units=4)
    with pytest.raises(ConfigError, match="data_generation"):
        make_agent(discrete_spec(), id="DQN-v0", units=4, data_generation="actor")
