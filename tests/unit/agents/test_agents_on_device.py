"""Acting by networks on the device: the same actions as in NumPy, compiled once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.learning import continuous_spec, discrete_spec, make_agent, random_block

from exarl.agents.random import Random
from exarl.learning.exploration import Streams

CASES: dict[str, dict[str, Any]] = {
    "DQN": {"id": "DQN-v0", "dueling": True},
    "DQN, actor's targets": {"id": "DQN-v0", "data_generation": "actor"},
    "DQN, LSTM": {"id": "DQN-v0", "units": 4},
    "PPO": {"id": "PPO-v0", "normalize_observations": True},
    "PPO, LSTM": {"id": "PPO-v0", "units": 4},
    "PPO, box": {"id": "PPO-v0", "spec": continuous_spec()},
    "DDPG": {"id": "DDPG-v0", "spec": continuous_spec(), "exploration": "ou", "learning_starts": 0},
    "SAC": {"id": "SAC-v0", "spec": continuous_spec(), "learning_starts": 0},
}


def pair(case: str) -> tuple[Any, Any]:
    """An agent in NumPy, and the same on the device for eight rows."""
    words = {"spec": discrete_spec(), **CASES[case]}
    spec = words.pop("spec")
    plain, placed = make_agent(spec, **words), make_agent(spec, **words)
    assert not placed.act_on_device(8), "a CPU is no accelerator"
    assert placed.act_on_device(8, always=True)
    return plain, placed


@pytest.mark.parametrize("case", CASES)
def test_actions_are_those_of_numpy(case: str) -> None:
    plain, placed = pair(case)
    rng = np.random.default_rng(1)
    for rows in (8, 3, 1):
        observations = rng.normal(size=(rows, 3)).astype(np.float32)
        memories = [{n: s.zeros(rows) for n, s in plain.memory.items()} for _ in range(2)]
        for _ in range(3):
            (one, recorded), (other, also) = (
                agent.action(observations, Streams(5, range(rows)), *([memory] if memory else []))
                for agent, memory in zip((plain, placed), memories, strict=True)
            )
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
            assert recorded.keys() == also.keys()
            for name in recorded:
                np.testing.assert_allclose(also[name], recorded[name], rtol=1e-4, atol=1e-5)
            for name, array in memories[0].items():
                np.testing.assert_allclose(memories[1][name], array, rtol=1e-4, atol=1e-5)
    assert placed.policy._device._compiled._cache_size() == 1


@pytest.mark.parametrize("case", ["DQN", pytest.param("PPO", marks=pytest.mark.slow)])
def test_what_the_learner_shows_is_what_it_would_send(case: str) -> None:
    """And stays so while the learner goes on, which takes its own buffers away."""
    plain, placed = pair(case)
    words = {"spec": discrete_spec(), **CASES[case]}
    spec = words.pop("spec")
    if words["id"] != "PPO-v0":
        words |= {"learning_starts": 4, "batch_size": 4}
    learner = make_agent(spec, learner=True, **words)
    block = random_block(spec, 0)
    recorded = {n: s.zeros(*block.rewards.shape) for n, s in learner.recorded.items()}
    block = type(block)(**{**vars(block), "recorded": recorded})
    for _ in range(2):
        learner.train(block)
        plain.set_weights(learner.get_weights())
        placed.take_acting(learner.acting_now())
        learner.train(block)
        observations = np.random.default_rng(2).normal(size=(8, 3)).astype(np.float32)
        one, other = (agent.action(observations)[0] for agent in (plain, placed))
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
    assert placed.policy._device._compiled._cache_size() == 1


def test_an_agent_without_networks_acts_as_ever() -> None:
    assert not Random(discrete_spec(), None, None, 0).act_on_device(4, always=True)  # type: ignore[arg-type]
