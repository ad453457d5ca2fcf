"""Normalised observations and rewards: actors, learners and checkpoints see the same numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from support.envs import Counter, KeptDrift
from support.learning import (
    adapter_of,
    assert_same_arrays,
    assert_same_block,
    collect,
    continuous_spec,
    discrete_spec,
    make_agent,
    make_rollout,
    random_block,
    through_storage,
)

from exarl.agents.normalizers import normalized_batch
from exarl.errors import ConfigError
from exarl.learning.exploration import Streams
from exarl.learning.returns import n_step_returns
from exarl.types import Arrays, ArraySpec, Block, EnvSpec

DISCRETE, CONTINUOUS = discrete_spec((3,), 4), continuous_spec((3,), 2)
KINDS: dict[str, tuple[str, EnvSpec, dict[str, Any]]] = {
    "DQN": ("DQN-v0", DISCRETE, {"epsilon": 0.3}),
    "TD3": ("TD3-v0", CONTINUOUS, {"learning_starts": 0}),
    "SAC": ("SAC-v0", CONTINUOUS, {"learning_starts": 0}),
    "PPO": ("PPO-v0", CONTINUOUS, {}),
    "A2C": ("A2C-v0", DISCRETE, {}),
}


def test_images_are_not_normalised() -> None:
    agent = make_agent(
        EnvSpec("Images", ArraySpec((8, 8, 1), "uint8"), ArraySpec((), "int64"), 3),
        id="PPO-v0",
        normalize_observations=True,
    )
    assert "norm/mean" not in agent.policy.acting.others
    assert not agent._normalizers.observations


def far_block(spec: EnvSpec, seed: int) -> Block:
    """Observations around 40, 5 wide, one dimension constant; and what agents record."""
    block = random_block(spec, seed, scale=3.0)
    recorded = {
        "log_prob": np.full(block.rewards.shape, -1.3, np.float32),
        "discounted_return": 7 * np.random.default_rng(seed).normal(size=(8, 2)).astype("f4"),
    }

    def far(observations: np.ndarray) -> np.ndarray:
        moved = np.float32(40) + np.float32(5) * observations
        moved[..., 2] = 1
        return moved

    return dataclasses.replace(
        block,
        observations=far(block.observations),
        final_observations=far(block.final_observations),
        recorded=recorded,
    )


def by_hand(blocks: list[Block], observations: np.ndarray) -> np.ndarray:
    """Observations normalised by all that was acted upon."""
    seen = np.concatenate([b.observations[:-1].reshape(-1, 3) for b in blocks]).astype(float)
    std = seen.std(0)
    scaled = (observations - seen.mean(0)) / np.where(std > 1e-6, std, 1)
    return scaled.clip(-10, 10).astype(np.float32)


def plain_twin(agent: Any, kind: str) -> Any:
    """The same weights in an agent that does not normalise."""
    id, spec, parameters = KINDS[kind]
    plain = make_agent(spec, id=id, **parameters)
    plain.set_weights(plain._layout.pack(agent._layout.unpack(agent.get_weights())))
    return plain


@pytest.mark.parametrize("kind", KINDS)
def test_an_actor_acts_as_one_that_is_given_normalised_observations(kind: str) -> None:
    id, spec, parameters = KINDS[kind]
    own = {**parameters, "normalize_observations": True}
    learner = make_agent(spec, id=id, learner=True, **own)
    blocks = [far_block(spec, seed) for seed in range(3)]
    for block in blocks:
        learner.update_normalizers(block)
    actor, plain = make_agent(spec, id=id, seed=5, **own), plain_twin(learner, kind)
    actor.set_weights(learner.get_weights())
    seen = np.concatenate([far_block(spec, 9).observations[:, 0], np.float32([[1e6, -1e6, 1]])])
    for streams in (None, 1):
        ours, theirs = (
            agent.action(given, None if streams is None else Streams(1, range(len(seen))))
            for agent, given in ((actor, seen), (plain, by_hand(blocks, seen)))
        )
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
    assert not np.allclose(ours[0], plain.action(seen, Streams(1, range(len(seen))))[0], atol=1e-3)


def test_a_learner_learns_as_one_that_is_given_normalised_blocks() -> None:
    own = {"normalize_observations": True, "normalize_rewards": True}
    learner = make_agent(DISCRETE, id="A2C-v0", learner=True, **own)
    blocks = [far_block(DISCRETE, seed) for seed in range(2)]
    learner.update_normalizers(blocks[0])
    plain = make_agent(DISCRETE, id="A2C-v0", learner=True)
    learner.train(blocks[1])
    returns = np.concatenate([b.recorded["discounted_return"].ravel() for b in blocks])
    plain.train(
        dataclasses.replace(
            blocks[1],
            observations=by_hand(blocks, blocks[1].observations),
            final_observations=by_hand(blocks, blocks[1].final_observations),
            rewards=blocks[1].rewards / np.float32(returns.std()),
        )
    )
    for name, array in plain.train_state.params.items():
        np.testing.assert_allclose(learner.train_state.params[name], array, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["DQN", "TD3"])
def test_batches_of_a_replay_are_normalised_when_they_are_drawn(kind: str) -> None:
    id, spec, parameters = KINDS[kind]
    own = {**parameters, "normalize_observations": True, "normalize_rewards": True}
    agent, blocks = make_agent(spec, id=id, learner=True, **own), [far_block(spec, 0)]
    agent.update_normalizers(blocks[0])
    rows = agent.algorithm.rows(np, agent.hyper, blocks[0])
    batch = normalized_batch(np, agent.hyper, agent.train_state.norm, rows)
    for name in ("observation", "next_observation"):
        np.testing.assert_allclose(batch[name], by_hand(blocks, rows[name]), rtol=1e-4, atol=1e-4)
    deviation = blocks[0].recorded["discounted_return"].std()
    np.testing.assert_allclose(batch["reward"], rows["reward"] / deviation, rtol=1e-5)
    for name in ("action", "discount"):
        np.testing.assert_array_equal(batch[name], rows[name])


def test_rewards_are_scaled_and_then_cut_off() -> None:
    block = far_block(DISCRETE, 0)
    agent = make_agent(DISCRETE, reward_scale=2.0, reward_clip=1.5)
    expected = np.clip(2 * block.rewards, -1.5, 1.5)
    assert 0 < (np.abs(expected) < 1.5).mean() < 1
    np.testing.assert_array_equal(agent.algorithm.rewards(agent.hyper, block), expected)
    plain = make_agent(DISCRETE)
    np.testing.assert_array_equal(plain.algorithm.rewards(plain.hyper, block), block.rewards)


CUT = {"normalize_rewards": True, "reward_scale": 2.0, "reward_clip": 0.5}


@pytest.mark.parametrize("kind", KINDS)
def test_rewards_are_normalised_and_scaled_and_then_cut_off(kind: str) -> None:
    id, spec, parameters = KINDS[kind]
    agent = make_agent(spec, id=id, learner=True, **parameters, **CUT)
    blocks = [far_block(spec, seed) for seed in range(2)]
    for block in blocks:
        agent.update_normalizers(block)
    rows = agent.algorithm.rows(np, agent.hyper, blocks[0])  # as they were before the second block
    found = normalized_batch(np, agent.hyper, agent.train_state.norm, rows)["reward"]
    deviation = np.std([block.recorded["discounted_return"] for block in blocks])
    expected = np.clip(2 * blocks[0].rewards / deviation, -0.5, 0.5).reshape(found.shape)
    assert 0 < (np.abs(expected) < 0.5).mean() < 1
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("units", [0, 4])
@pytest.mark.parametrize("device", ["host", "device"])
def test_each_reward_of_a_window_is_cut_off_by_itself(units: int, device: str) -> None:
    own = {"n_step": 3, "gamma": 0.5, "learning_starts": 0, "batch_size": 4, **CUT}
    own |= {"replay_device": device} | ({"units": units} if units else {})
    agent, block = make_agent(DISCRETE, learner=True, **own), far_block(DISCRETE, 3)
    recorded = {name: s.zeros(*block.rewards.shape) for name, s in agent.recorded.items()}
    block = dataclasses.replace(block, recorded={**recorded, **block.recorded})
    agent.update_normalizers(block)
    rows = agent.algorithm.rows(np, agent.hyper, block)
    found = normalized_batch(np, agent.hyper, agent.train_state.norm, rows)["reward"]
    deviation = block.recorded["discounted_return"].std()
    single = np.clip(2 * block.rewards / deviation, -0.5, 0.5)
    ends = (block.terminated, block.truncated)
    expected = n_step_returns(np, single, *ends, 0.5, 3)[0]
    expected = expected.T if units else expected.ravel()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert np.isfinite(float(agent.train(block)["loss"]))


def test_statistics_are_kept_and_continue() -> None:
    own = {"normalize_observations": True, "normalize_rewards": True}
    learner = make_agent(DISCRETE, id="A2C-v0", learner=True, **own)
    blocks = [far_block(DISCRETE, seed) for seed in range(4)]
    for block in blocks[:2]:
        learner.train(block)
    again = make_agent(DISCRETE, id="A2C-v0", seed=7, learner=True, **own)
    again.restore(*through_storage(*learner.state()))
    for block in blocks[2:]:
        assert learner.train(block) == again.train(block)
    np.testing.assert_array_equal(learner.get_weights(), again.get_weights())
    assert_same_arrays(learner.state()[0], again.state()[0])
    seen = np.concatenate([b.observations[:-1].reshape(-1, 3) for b in blocks]).astype(float)
    returns = np.concatenate([b.recorded["discounted_return"].ravel() for b in blocks])
    np.testing.assert_allclose(again._moments[0].mean, seen.mean(0), rtol=1e-9)
    np.testing.assert_allclose(again._moments[0].std[:2], seen.std(0)[:2], rtol=1e-7)
    np.testing.assert_allclose(again.train_state.norm["return_std"], returns.std(), rtol=1e-5)


@pytest.mark.parametrize("id", ["DQN-v0", "PPO-v0"])
def test_discounted_returns_by_hand_over_blocks_and_episodes(id: str) -> None:
    spec = adapter_of(Counter()).spec
    agent = make_agent(spec, id=id, normalize_rewards=True, gamma=0.8)
    rollout = make_rollout(agent, lambda i: Counter(i, (3, 0, 5)), [0, 1], steps=4, limit=6)
    sums = np.zeros(2)
    for number in range(5):
        block = collect(rollout, number)
        for t in range(4):
            sums = 0.8 * sums + block.rewards[t]
            np.testing.assert_allclose(block.recorded["discounted_return"][t], sums, rtol=1e-5)
            sums = np.where(block.ended[t], 0, sums)
        assert block.ended.any() or number == 0 or block.rewards.min() > 0


def test_discounted_returns_outlive_their_rollout() -> None:
    spec = adapter_of(KeptDrift()).spec
    agent = make_agent(spec, id="A2C-v0", normalize_rewards=True)
    one, other = (
        make_rollout(agent, lambda _: KeptDrift(), range(3), steps=5, limit=9) for _ in range(2)
    )
    collect(one)
    stored: Arrays = through_storage({n: np.asarray(a) for n, a in one.state().items()})[0]
    assert any(stored[f"{i}/return"] != 0 for i in range(3))
    other.restore(stored)
    for _ in range(3):
        assert_same_block(collect(one), collect(other))


def test_rewards_that_an_actor_sums_up_cannot_be_normalised() -> None:
    """The actor's targets are made before the learner knows the deviation of the returns."""
    with pytest.raises(ConfigError, match="data_generation must be learner"):
        make_agent(DISCRETE, id="DQN-v0", normalize_rewards=True, data_generation="actor")
