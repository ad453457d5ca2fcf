"""How many updates a block is worth, and when the first is made."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.learning import (
    continuous_spec,
    discrete_spec,
    make_agent,
    random_block,
    through_storage,
)

from exarl import registry
from exarl.config import LearnerConfig
from exarl.errors import ConfigError

STEPS = 16  # of a block
SPECS = {"DQN-v0": discrete_spec(), "SAC-v0": discrete_spec(), "TD3-v0": continuous_spec()}
SMALL = {"batch_size": 4, "replay_capacity": 64}


def updates(id: str, count: int, shape: tuple[int, int] = (8, 2), **parameters: Any) -> list[int]:
    """What ``train`` reports for each of ``count`` blocks."""
    spec = SPECS.get(id, discrete_spec())
    agent = make_agent(spec, id=id, learner=True, **parameters)
    recorded = {name: np.zeros(shape, kind.dtype) for name, kind in agent.recorded.items()}
    blocks = (random_block(spec, seed, *shape) for seed in range(count))
    trained = [agent.train(dataclasses.replace(block, recorded=recorded)) for block in blocks]
    return [int(metrics["updates"]) for metrics in trained]


@pytest.mark.parametrize("id", SPECS)
@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        (0, [4, 4, 4]),
        (2 * STEPS - 1, [0, 4, 4]),
        (2 * STEPS, [0, 4, 4]),
        (2 * STEPS + 1, [0, 0, 4]),
    ],
)
def test_the_first_updates_follow_the_block_that_completes_learning_starts(
    id: str, starts: int, expected: list[int]
) -> None:
    found = updates(id, 3, learning_starts=starts, updates_per_step=0.25, **SMALL)
    assert found == expected


@pytest.mark.parametrize("replay", ["host", "device"])
@pytest.mark.parametrize(
    ("shape", "starts", "per_step", "expected"),
    [
        ((1, 1), 0, 0.25, [0, 0, 0, 1, 0, 0, 0, 1]),
        ((1, 1), 6, 0.25, [0, 0, 0, 0, 0, 0, 0, 1]),
        ((8, 2), 0, 0.1, [1, 2, 1, 2, 2]),
        ((8, 2), 0, 0.001, [0, 0]),
        ((8, 2), 0, 1.0, [STEPS, STEPS]),
        ((1, 3), 0, 1 / 3, [1, 1, 1]),
    ],
)
def test_what_is_left_over_of_a_block_counts_for_the_next(
    replay: str, shape: tuple[int, int], starts: int, per_step: float, expected: list[int]
) -> None:
    chosen = {"learning_starts": starts, "updates_per_step": per_step, "replay_device": replay}
    assert updates("DQN-v0", len(expected), shape, **chosen, **SMALL) == expected


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=30),
    st.integers(1, 400),
    st.sampled_from([1, 2, 3, 7, 10, 100]),
    st.integers(0, 3000),
)
def test_no_remainder_is_lost_and_whole_numbers_stay_what_they_are(
    sizes: list[int], numerator: int, denominator: int, starts: int
) -> None:
    rate = numerator / denominator
    algorithm = make_agent(discrete_spec(), updates_per_step=rate, learning_starts=starts).algorithm
    totals = np.cumsum(sizes).tolist()
    found = [algorithm.n_updates(s, made) for s, made in zip(sizes, totals, strict=True)]
    learnt = [n for n, made in zip(sizes, totals, strict=True) if made >= max(starts, 1)]
    assert -1 < sum(found) - sum(learnt) * numerator / denominator < 1
    for size, made, number in zip(sizes, totals, found, strict=True):
        if made >= max(starts, 1) and size * numerator % denominator == 0:
            assert number == size * numerator // denominator


def test_a_run_that_goes_on_makes_the_same_updates() -> None:
    own = {"learning_starts": 0, "updates_per_step": 0.4, **SMALL}
    blocks = [random_block(discrete_spec(), seed, 1, 1) for seed in range(10)]
    agent = make_agent(discrete_spec(), learner=True, **own)
    expected = [int(agent.train(block)["updates"]) for block in blocks]
    assert expected == [0, 0, 1, 0, 1] * 2
    for stop in range(1, 6):
        first, then = (make_agent(discrete_spec(), learner=True, **own) for _ in range(2))
        found = [int(first.train(block)["updates"]) for block in blocks[:stop]]
        then.restore(*through_storage(*first.state()))
        assert found + [int(then.train(block)["updates"]) for block in blocks[stop:]] == expected


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (3, 1), (2, 4)])
def test_ppo_goes_over_a_block_in_minibatches(epochs: int, minibatches: int) -> None:
    chosen = {"epochs": epochs, "minibatches": minibatches}
    assert updates("PPO-v0", 2, **chosen) == [epochs * minibatches] * 2


@pytest.mark.parametrize(("steps", "minibatches"), [(8, 1), (64, 1), (160, 2), (512, 8)])
def test_minibatches_of_ppo_have_64_steps_unless_their_number_is_given(
    steps: int, minibatches: int
) -> None:
    assert updates("PPO-v0", 1, (steps, 1), epochs=2) == [2 * minibatches]
    assert updates("PPO-v0", 1, (steps // 2, 2), epochs=2) == [2 * minibatches]


def test_a2c_makes_one_update_of_a_block() -> None:
    assert updates("A2C-v0", 2) == [1, 1]


@pytest.mark.parametrize(
    ("id", "parameters", "learners", "refused"),
    [
        ("DQN-v0", {"n_step": 9}, 1, ""),
        ("SAC-v0", {"replay_device": "device"}, 2, "replay_device must be host"),
        ("SAC-v0", {"replay_device": "device"}, 1, ""),
        ("SAC-v0", {}, 2, ""),
        ("DQN-v0", {"batch_size": 2}, 3, "batch_size=2 cannot be shared by learner_procs=3"),
        ("DQN-v0", {"batch_size": 3}, 3, ""),
        ("DQN-v0", {"batch_size": 12, "learner_devices": 4}, 3, ""),
        (
            "DQN-v0",
            {"batch_size": 8, "learner_devices": 4},
            3,
            "divided among 3 learners of 4 devices",
        ),
        ("SAC-v0", {"batch_size": 9, "learner_devices": 4}, 1, "divided among 4 devices"),
        (
            "SAC-v0",
            {"learner_devices": 2, "replay_device": "device"},
            1,
            "replay_device must be host",
        ),
        ("PPO-v0", {}, 2, ""),
    ],
)
def test_what_an_agent_cannot_do_is_refused_before_a_run(
    id: str, parameters: dict[str, Any], learners: int, refused: str
) -> None:
    agent = registry.agents.load(id)
    config, run = agent.Config(**parameters), LearnerConfig(block_steps=8)
    with pytest.raises(ConfigError, match=refused) if refused else contextlib.nullcontext():
        agent.check(config, run, learners=learners, lags=False)


def test_windows_of_sequences_have_to_fit_into_a_block() -> None:
    agent, run = registry.agents.load("DQN-v0"), LearnerConfig(block_steps=8, model_type="LSTM")
    agent.check(agent.Config(n_step=8), run, learners=1, lags=False)
    with pytest.raises(
        ConfigError, match="n_step=9 needs block_steps >= n_step, not 8, with an LSTM"
    ):
        agent.check(agent.Config(n_step=9), run, learners=1, lags=False)
