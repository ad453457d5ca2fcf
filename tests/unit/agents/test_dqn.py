"""DQN against a reference written by hand, and the promises every learner of a run relies on."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from support.dqn import PLAIN, SMALL, SPEC, Reference, blocks, learned, learner, named, unpacked
from support.learning import (
    assert_same_arrays,
    make_agent,
    random_block,
    through_storage,
)

from exarl.agents.dqn import DeepQ
from exarl.types import Arrays, Block

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "double": {"double": True},
    "dueling": {"dueling": True},
    "huber": {"loss": "huber"},
    "n-step": {"n_step": 3},
    "periodic": {"tau": 0.0, "target_update_interval": 3},
    "clip": {"max_grad_norm": 0.3},
    "no clip needed": {"max_grad_norm": 1e6},
    "falling rate": {"learning_rate_end": 0.01, "learning_rate_updates": 6},
    "everything": {
        "double": True,
        "dueling": True,
        "n_step": 2,
        "loss": "huber",
        "optimizer": "adam",
        "learning_rate": 0.01,
        "max_grad_norm": 0.5,
    },
}


def spied_batches(agent: Any) -> list[Arrays]:
    """Every minibatch the agent will draw, one by one."""
    drawn: list[Arrays] = []
    sample = agent.experience.sample

    def spy(updates: int, made: int) -> Arrays:
        stacked: Arrays = sample(updates, made)
        drawn.extend({n: a[i] for n, a in stacked.items()} for i in range(updates))
        return stacked

    agent.experience.sample = spy
    return drawn


def referred(params: Arrays, config: Any, drawn: list[Arrays]) -> Reference:
    reference = Reference(params, config)
    for batch in drawn:
        reference.update(batch)
    return reference


@pytest.mark.parametrize("name", VARIANTS)
def test_updates_equal_the_reference(name: str) -> None:
    agent = learner(**{**PLAIN, **VARIANTS[name]})
    params, drawn = unpacked(agent), spied_batches(agent)
    for block in blocks(2):
        assert agent.train(block)["updates"] == 4
    assert len(drawn) == 8
    reference = referred(params, agent.config, drawn)
    target = learned(agent, "target")
    for part, expected in ((unpacked(agent), reference.params), (target, reference.target)):
        for key, array in part.items():
            np.testing.assert_allclose(array, expected[key], rtol=2e-4, atol=2e-6, err_msg=key)
    if name not in ("plain", "dueling", "n-step", "no clip needed"):  # the option has its effect
        plain = referred(params, type(agent.config)(**PLAIN), drawn)
        assert any(np.abs(reference.params[n] - p).max() > 1e-4 for n, p in plain.params.items())


def test_metrics_by_hand() -> None:
    agent = learner(**{**PLAIN, "updates_per_step": 1 / 16})
    drawn = spied_batches(agent)
    params = unpacked(agent)
    metrics = agent.train(blocks(1)[0])
    batch = drawn[0]
    q = agent.algorithm.q_values(np, named(params), batch["observation"])
    following = agent.algorithm.q_values(np, named(params), batch["next_observation"])
    goal = batch["reward"] + batch["discount"] * following.max(1)
    errors = goal - q[np.arange(6), batch["action"]]
    assert metrics["updates"] == 1
    assert metrics["loss"] == pytest.approx(0.5 * np.mean(errors**2), rel=1e-4)
    assert metrics["td_error"] == pytest.approx(np.mean(np.abs(errors)), rel=1e-4)
    assert metrics["q_mean"] == pytest.approx(q.mean(), rel=1e-4)
    assert set(metrics) == {"updates", *agent.metrics}


# -- transitions ----------------------------------------------------------------------------------


def counted_block() -> Block:
    """Two environments of four steps; observation 10 b + t, final observations 100 and more."""
    steps = np.arange(5.0)[:, None] + np.array([0, 10.0])
    terminated, truncated = np.zeros((4, 2), bool), np.zeros((4, 2), bool)
    terminated[1, 0] = truncated[2, 1] = truncated[3, 0] = True
    return Block(
        steps[..., None].repeat(3, 2).astype(np.float32),
        np.arange(8).reshape(4, 2) % 4,
        np.array([[1, 10], [2, 20], [4, 40], [8, 80]], np.float32),
        terminated,
        truncated,
        np.float32([[100] * 3, [101] * 3, [102] * 3]),  # env 0 at 1, env 0 at 3, env 1 at 2
        np.zeros(3),
        np.zeros(3, int),
    )


def transitions(agent: Any) -> Arrays:
    rows: Arrays = agent.algorithm.transitions(np, agent.hyper, counted_block())
    return rows


def test_one_step_transitions_by_hand() -> None:
    rows = transitions(make_agent(SPEC, gamma=0.5))
    np.testing.assert_array_equal(rows["observation"][:, 0], [0, 10, 1, 11, 2, 12, 3, 13])
    np.testing.assert_array_equal(rows["next_observation"][:, 0], [1, 11, 100, 12, 3, 102, 101, 14])
    np.testing.assert_array_equal(rows["action"], np.arange(8) % 4)
    np.testing.assert_array_equal(rows["reward"], [1, 10, 2, 20, 4, 40, 8, 80])
    np.testing.assert_array_equal(rows["discount"], [0.5, 0.5, 0, 0.5, 0.5, 0.5, 0.5, 0.5])


def test_two_step_transitions_by_hand() -> None:
    rows = transitions(make_agent(SPEC, gamma=0.5, n_step=2))
    np.testing.assert_array_equal(rows["reward"], [2, 20, 2, 40, 8, 40, 8, 80])
    np.testing.assert_array_equal(
        rows["next_observation"][:, 0], [100, 12, 100, 102, 101, 102, 101, 14]
    )
    np.testing.assert_array_equal(rows["discount"], [0, 0.25, 0, 0.25, 0.25, 0.5, 0.5, 0.5])


def test_rewards_are_scaled() -> None:
    plain, scaled = (make_agent(SPEC, reward_scale=s, n_step=2) for s in (1.0, 0.1))
    rows, small = transitions(plain), transitions(scaled)
    np.testing.assert_allclose(small["reward"], 0.1 * rows["reward"], rtol=1e-6)
    np.testing.assert_array_equal(small["discount"], rows["discount"])


# -- determinism, compilation, keeping --------------------------------------------------------------


def test_same_seed_same_weights_other_seed_others() -> None:
    ends = []
    for seed in (1, 1, 2):
        agent = learner(seed, **SMALL)
        metrics = [agent.train(block) for block in blocks(3)]
        ends.append((agent.get_weights(), metrics))
    np.testing.assert_array_equal(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]
    assert np.abs(ends[0][0] - ends[2][0]).max() > 1e-3


def test_one_compiled_call_equals_updates_one_at_a_time() -> None:
    agent, other = learner(**SMALL), learner(**{**SMALL, "updates_per_step": 1 / 16})
    drawn = spied_batches(agent)
    for block in blocks(3):
        agent.train(block)
    assert len(drawn) == 12
    for batch in drawn:
        one = {name: array[None] for name, array in batch.items()}
        other.experience.sample = lambda *_, one=one: one
        assert other.train(blocks(1)[0])["updates"] == 1
    for array, again in zip(
        jax.tree.leaves(agent.train_state), jax.tree.leaves(other.train_state), strict=True
    ):
        np.testing.assert_allclose(array, again, rtol=1e-5, atol=1e-7)


def test_one_compilation_serves_a_run_and_a_restored_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python sees the loss only while it is traced."""
    traced, loss = [], DeepQ.loss

    def spy(*arguments: Any) -> Any:
        traced.append(True)
        return loss(*arguments)

    monkeypatch.setattr(DeepQ, "loss", spy)
    agent = learner(**SMALL)
    agent.train(blocks(1)[0])
    first = len(traced)
    assert first > 0
    for block in blocks(4, first=1):  # the blocks differ in how many episodes end
        agent.train(block)
    agent.restore(*through_storage(*agent.state()))
    agent.train(blocks(1)[0])
    assert len(traced) == first


@pytest.mark.parametrize("capacity", [1000, 20], ids=["filling", "full ring"])
def test_a_restored_learner_continues_bit_by_bit(capacity: int) -> None:
    parameters = {**SMALL, "replay_capacity": capacity, "epsilon_steps": 200}
    agent = learner(3, **parameters)
    for block in blocks(3):
        agent.train(block)
    stored = through_storage(*agent.state())
    other = learner(4, **parameters)  # another seed: everything must come from the state
    other.restore(*stored)
    for block in blocks(3, first=50):
        assert agent.train(block) == other.train(block)
        np.testing.assert_array_equal(agent.get_weights(), other.get_weights())
    assert_same_arrays(agent.state()[0], other.state()[0])
    assert agent.state()[1] == other.state()[1]


def test_state_is_a_copy_that_training_does_not_change() -> None:
    agent = learner(**{**SMALL, "replay_capacity": 1000})
    agent.train(blocks(1)[0])
    arrays, _ = agent.state()
    learned = {name: a for name, a in arrays.items() if not name.startswith("replay/")}
    kept = {name: a.copy() for name, a in learned.items()}
    agent.train(blocks(1, first=9)[0])
    assert_same_arrays(learned, kept)


def test_a_restored_learner_acts_with_the_stored_weights() -> None:
    agent = learner(1, **SMALL)
    for block in blocks(3):
        agent.train(block)
    other = learner(4, **SMALL)
    other.restore(*through_storage(*agent.state()))
    agent.set_weights(agent.get_weights())
    seen = random_block(SPEC, 5, steps=200, width=1).observations[:, 0]
    expected = agent.action(seen)[0]
    assert len(set(expected.tolist())) > 1
    np.testing.assert_array_equal(other.action(seen)[0], expected)


def test_state_of_another_network_is_refused() -> None:
    arrays, numbers = learner(**SMALL).state()
    other = make_agent(SPEC, hidden=(9,), learner=True, **SMALL)
    with pytest.raises(ValueError, match="shape"):
        other.restore(arrays, numbers)
