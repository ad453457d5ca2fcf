"""Prior data: part of every batch, in every replay, as if the agent had lived it; and cloning it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.learning import (
    assert_same_arrays,
    continuous_spec,
    discrete_spec,
    make_agent,
    random_block,
)

from exarl.agents.prior import Prior, episode_block
from exarl.errors import CheckpointError, ConfigError
from exarl.types import Block, EnvSpec

MARK = 50.0
"""What observations of prior data have in their first place, and others nowhere near."""


def episodes(spec: EnvSpec, mark: float, count: int = 4, steps: int = 6) -> tuple[Block, ...]:
    """Episodes in which the action follows from the observation."""
    rng = np.random.default_rng(1)
    made = []
    for _ in range(count):
        seen = rng.normal(size=(steps + 1, 3)).astype(np.float32)
        seen[:, 0] = mark
        actions: Any = (seen[:-1, 1] > 0).astype(np.int64)
        if not spec.discrete:
            actions = np.tanh(seen[:-1, 1:])
        flags = np.zeros(steps, bool)
        made.append(episode_block(seen, actions, np.ones(steps), flags, flags))
    return tuple(made)


def learner(
    id: str, spec: EnvSpec, part: float = 0.5, mark: float = MARK, **parameters: Any
) -> Any:
    agent = make_agent(spec, id=id, **{"batch_size": 8, "learning_starts": 0, **parameters})
    agent.prior = Prior(episodes(spec, mark), part, {"here": "sum"})
    agent.set_learner()
    return agent


ALL = [
    ("DQN-v0", discrete_spec()),
    ("TD3-v0", continuous_spec()),
    ("SAC-v0", continuous_spec()),
    ("SAC-v0", discrete_spec()),
]


def block_of(spec: EnvSpec, seed: int = 0) -> Block:
    return random_block(spec, seed, 4, 2)


@pytest.mark.parametrize("part", [0.25, 0.5])
@pytest.mark.parametrize("priority", [0.0, 0.6])
def test_a_part_of_each_batch_is_prior_data(part: float, priority: float) -> None:
    agent = learner("DQN-v0", discrete_spec(), part, priority_scale=priority)
    assert (
        agent.experience.sample(3, 0)["observation"][:, :, 0] == MARK
    ).all()  # there is no other
    agent.train(block_of(agent.spec))
    batches = agent.experience.sample(5, 0)
    old = batches["observation"][:, :, 0] == MARK
    assert (old.sum(1) == 8 * part).all()
    assert old[:, : int(8 * part)].all()
    if priority:
        assert (batches["weight"][old] == 1).all()
        assert batches["index"].shape == (5, 8 - 8 * part)


def test_windows_of_prior_data_end_with_the_episode() -> None:
    agent = learner("DQN-v0", discrete_spec(), n_step=3, gamma=0.5)
    rows = agent.experience._prior
    np.testing.assert_allclose(rows["reward"][:6], [1.75, 1.75, 1.75, 1.75, 1.5, 1.0])
    np.testing.assert_allclose(rows["discount"][:6], [0.125] * 4 + [0.25, 0.5])  # truncated
    last = agent.prior.blocks[0].final_observations[0]
    for row in rows["next_observation"][3:6]:
        np.testing.assert_array_equal(row, last)


def test_on_the_device_a_part_is_prior_data_and_all_of_it_at_first() -> None:
    from exarl.agents.device_replay import batch, sums_of

    for priority in (0.0, 0.6):
        agent = learner("DQN-v0", discrete_spec(), replay_device="device", priority_scale=priority)
        replay = agent.experience
        draws = agent.algorithm.draws
        empty = replay.empty(replay._prior)
        rows, _ = batch(draws, 8, empty, sums_of(empty), 0.4, np.int32(0), 4)
        assert (np.asarray(rows["observation"])[:, 0] == MARK).all()
        agent.train(block_of(agent.spec))
        agent.train(block_of(agent.spec, 1))
        store = replay._store
        rows, places = batch(draws, 8, store, sums_of(store), 0.4, np.int32(0), 4)
        old = np.asarray(rows["observation"])[:, 0] == MARK
        assert old.tolist() == [True] * 4 + [False] * 4
        assert places is None or len(places) == 4
        assert all(np.isfinite(np.asarray(a)).all() for a in rows.values())


@pytest.mark.parametrize("device", ["host", "device"])
@pytest.mark.parametrize(("id", "spec"), ALL[:1] + ALL[2:3])
def test_a_restored_agent_goes_on_exactly(id: str, spec: EnvSpec, device: str) -> None:
    one = learner(id, spec, replay_device=device, normalize_observations=True)
    one.train(block_of(spec))
    arrays, numbers = one.state()
    arrays = {name: np.array(array) for name, array in arrays.items()}
    other = learner(id, spec, replay_device=device, normalize_observations=True)
    other.restore(arrays, numbers)
    for agent in (one, other):
        agent.train(block_of(spec, 1))
        agent.train_on_prior(2)
    assert_same_arrays(one.state()[0], other.state()[0])


def test_a_checkpoint_of_other_data_is_refused() -> None:
    agent = learner("DQN-v0", discrete_spec())
    arrays, numbers = agent.state()
    for prior in ({"here": "other"}, None):
        with pytest.raises(CheckpointError, match="prior_data"):
            agent.restore(arrays, {**numbers, "prior": prior})


def test_normalisers_have_seen_prior_data() -> None:
    agent = learner("DQN-v0", discrete_spec(), normalize_observations=True, normalize_rewards=True)
    seen = np.concatenate([block.observations[:-1, 0] for block in agent.prior.blocks])
    np.testing.assert_allclose(agent.train_state.norm["mean"], seen.mean(0), rtol=1e-4)
    assert agent._moments[1].count == len(seen)


@pytest.mark.parametrize(("id", "spec"), ALL)
def test_cloning_does_what_was_done(id: str, spec: EnvSpec) -> None:
    agent = learner(id, spec, mark=1.0, hidden=(16,), learning_rate=0.02, batch_size=32)
    first = float(agent.clone(20)["clone_loss"])
    for _ in range(5):
        last = float(agent.clone(100)["clone_loss"])
    assert last < 0.5 * first or last < first - 1
    block = agent.prior.blocks[0]
    agent.set_weights(agent.get_weights())
    chosen, _ = agent.action(block.observations[:-1, 0])
    wrong = np.abs(np.asarray(chosen, float) - block.actions[:, 0]).mean()
    assert wrong < (0.2 if spec.discrete else 0.15)
    agent.train(block_of(spec))  # its arrays are its own, though an update gives them away
    agent.clone(20)


def test_what_cannot_use_it_says_so() -> None:
    for wrong in ({"units": 4, "n_step": 1}, {"data_generation": "actor"}):
        with pytest.raises(ConfigError, match="prior_data"):
            learner("DQN-v0", discrete_spec(), **wrong)
    agent = make_agent(discrete_spec(), learner=True)
    with pytest.raises(ConfigError, match="clone needs prior_data"):
        agent.clone(1)
