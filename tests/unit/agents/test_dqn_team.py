"""Several learners that train one DQN together, each in a thread, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.dqn import Reference, learned
from support.learning import discrete_spec, make_agent, random_block
from support.team import Meeting, ThreadTeam, assert_same_state, train_together

from exarl.types import Arrays

SPEC = discrete_spec((3,), 4)
PARAMETERS = {
    "batch_size": 12,
    "learning_starts": 0,
    "updates_per_step": 0.125,  # of 32 steps: 4 updates
    "max_grad_norm": 0.5,
    "learning_rate": 0.01,
    "tau": 0.0,
    "target_update_interval": 3,
}


def make_team(size: int, every: int = 1, **parameters: Any) -> list[Any]:
    meeting = Meeting(size)
    agents = []
    for index in range(size):
        agents.append(make_agent(SPEC, **{**PARAMETERS, **parameters}))
        agents[-1].join_team(ThreadTeam(meeting, index, every))
        agents[-1].set_learner()
    return agents


def spied(agent: Any) -> list[Arrays]:
    """The stacks of minibatches the agent draws."""
    drawn: list[Arrays] = []
    sample = agent.experience.sample

    def spy(*arguments: Any) -> Arrays:
        drawn.append(sample(*arguments))
        return drawn[-1]

    agent.experience.sample = spy
    return drawn


def parameters_of(agent: Any) -> Arrays:
    return learned(agent, "params")


@pytest.mark.parametrize(("batch", "shares"), [(12, [6, 6]), (13, [5, 4, 4])])
def test_shares_of_a_batch_averaged_are_the_whole_batch(batch: int, shares: list[int]) -> None:
    """The gradient is averaged before it is clipped, at every update, whatever the remainder."""
    agents = make_team(len(shares), batch_size=batch)
    reference = Reference(parameters_of(agents[0]), agents[0].config)
    drawn = [spied(agent) for agent in agents]
    for seed in (0, 10):
        blocks = [random_block(SPEC, seed + i, scale=3.0) for i in range(len(agents))]
        metrics = train_together(agents, blocks)
        assert [m["updates"] for m in metrics] == [4] * len(agents)
    for parts in zip(*drawn, strict=True):
        assert [part["action"].shape for part in parts] == [(4, share) for share in shares]
        assert not np.array_equal(parts[0]["reward"][:, 0], parts[1]["reward"][:, 0])
        for update in range(4):
            reference.update(
                {n: np.concatenate([part[n][update] for part in parts]) for n in parts[0]}
            )
    assert_same_state(agents)
    for name, array in parameters_of(agents[0]).items():
        np.testing.assert_allclose(array, reference.params[name], rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("every", [1, 2])
def test_a_learner_without_data_holds_nobody_up_and_stays_in_step(every: int) -> None:
    agents = make_team(2, every)
    train_together(agents, [random_block(SPEC, 0), None])
    assert_same_state(agents)
    train_together(agents, [random_block(SPEC, 1), random_block(SPEC, 2)])
    np.testing.assert_array_equal(agents[0].get_weights(), agents[1].get_weights())


def test_a_learner_without_data_says_so_and_when_it_has_some(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "exarl.agents.experience")
    agents = make_team(2, batch_size=13)
    told = []
    for second in (None, None, random_block(SPEC, 1), None):
        caplog.clear()
        train_together(agents, [random_block(SPEC, 0), second])
        told.append([record.getMessage() for record in caplog.records])
    assert told == [
        ["this learner has no data yet: batches lack its share, 6 of 13 transitions"],
        [],
        ["this learner has data now: batches are whole again"],
        [],
    ]


@pytest.mark.parametrize("every", [1, 2])
def test_what_one_learns_is_not_diluted_by_those_without_data(every: int) -> None:
    agents = make_team(3, every)
    alone = make_agent(SPEC, learner=True, **PARAMETERS)
    drawn, block = spied(agents[0]), random_block(SPEC, 0, scale=3.0)
    train_together(agents, [block, None, None])
    alone.experience.sample = lambda *_: drawn[0]
    alone.train_in_team(block, 32)
    for name, array in parameters_of(alone).items():
        np.testing.assert_allclose(parameters_of(agents[2])[name], array, rtol=1e-5, atol=1e-6)


def test_states_are_averaged_every_so_many_updates_by_shares_of_a_batch() -> None:
    agents = make_team(2, every=4, batch_size=3)
    alone = [make_agent(SPEC, learner=True, **PARAMETERS) for _ in agents]
    drawn = [spied(agent) for agent in agents]
    block = random_block(SPEC, 0, scale=3.0)
    train_together(agents, [block, random_block(SPEC, 1, scale=3.0)])
    for agent, stacks in zip(alone, drawn, strict=True):
        agent.experience.sample = lambda *_, stack=stacks[0]: stack
        agent.train_in_team(block, 32)
    assert_same_state(agents)
    one, other = (parameters_of(agent) for agent in alone)
    for name, array in parameters_of(agents[0]).items():
        assert np.abs(one[name] - other[name]).max() > 1e-4
        np.testing.assert_allclose(array, (2 * one[name] + other[name]) / 3, rtol=1e-5, atol=1e-6)


def test_a_remainder_of_all_blocks_together_counts_for_the_next() -> None:
    agents = make_team(2, updates_per_step=0.25, batch_size=4)
    for round in range(6):
        blocks = [random_block(SPEC, 2 * round + i, 1, 1) for i in range(2)]
        metrics = train_together(agents, blocks, steps=2)
        assert [m["updates"] for m in metrics] == [round % 2] * 2
    assert_same_state(agents)
