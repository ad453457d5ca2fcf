"""Several blocks in one compiled call: the updates of one wide block, whatever their number."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from support.learning import continuous_spec, discrete_spec, make_agent, random_block
from support.team import Meeting, ThreadTeam

from exarl.agents.dqn import DQN
from exarl.types import Block, concatenate

QUICK = {"learning_starts": 0, "batch_size": 8, "updates_per_step": 0.3}


def blocks_of(agent: Any, count: int) -> list[Block]:
    recorded = {name: spec.zeros(8, 2) for name, spec in agent.recorded.items()}
    blocks = [random_block(agent.spec, seed) for seed in range(count)]
    return [dataclasses.replace(block, recorded=recorded) for block in blocks]


@pytest.mark.parametrize(
    ("id", "parameters"),
    [
        ("DQN-v0", {}),
        ("DQN-v0", {"priority_scale": 0.6, "normalize_observations": True}),
        # Some metrics of some updates are missing:
        pytest.param("TD3-v0", {}, marks=pytest.mark.slow),
    ],
)
def test_the_updates_are_those_of_a_wide_block(id: str, parameters: dict[str, Any]) -> None:
    spec = discrete_spec() if id == "DQN-v0" else continuous_spec()
    one, other = (make_agent(spec, id=id, learner=True, **QUICK, **parameters) for _ in range(2))
    first, *rest = blocks_of(one, 4)
    metrics: list[dict[str, Any]] = []
    for agent, learn in ((one, one.train), (other, other.train_together)):
        agent.train(first)
        metrics.append(learn(concatenate(rest)))
        agent.train(first)  # with what the call before has left
    (arrays, numbers), (same, like) = one.state(), other.state()
    assert numbers == like
    assert arrays.keys() == same.keys()
    for name, array in arrays.items():
        np.testing.assert_allclose(array, same[name], rtol=1e-5, atol=1e-6, err_msg=name)
    assert metrics[0].keys() == metrics[1].keys()
    for name, value in metrics[0].items():
        np.testing.assert_allclose(value, metrics[1][name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_as_many_updates_as_one_by_one() -> None:
    one, other = (make_agent(discrete_spec(), learner=True, **QUICK) for _ in range(2))
    blocks = blocks_of(one, 8)
    alone = sum(int(one.train(block)["updates"]) for block in blocks)
    made = int(other.train(blocks[0])["updates"])
    made += int(other.train_together(concatenate(blocks[1:4]))["updates"])
    made += int(other.train_together(concatenate(blocks[4:]))["updates"])
    assert made == alone == int(one.train_state.updates) == int(other.train_state.updates)
    assert one.experience.replay.size == other.experience.replay.size


def test_few_programs_serve_all_numbers_of_blocks() -> None:
    """2 to 16 blocks have 4 to 77 updates; compiled for at most 4, 8, 16, 32, 64 and 128."""
    agent = make_agent(discrete_spec(), learner=True, **QUICK)
    compiled: list[int] = []

    @contextmanager
    def compiling() -> Iterator[None]:
        compiled.append(1)
        yield

    agent.report_compiling(compiling)
    blocks = blocks_of(agent, 16)
    agent.train(blocks[0])
    agent.train(blocks[0])
    before = len(compiled)
    for count in [*range(2, 17), *range(16, 1, -1)]:
        agent.train_together(concatenate(blocks[:count]))
    assert len(compiled) - before <= 5


def test_who_joins_blocks() -> None:
    agent = make_agent(discrete_spec(), learner=True, **QUICK)
    assert not agent.joins_blocks(), "before learning_starts numbers of updates do not add up"
    agent.train(blocks_of(agent, 1)[0])
    assert agent.joins_blocks()
    # Each block has an update phase of its own; the compiled call takes the rows of one block:
    for id, parameters in (("PPO-v0", {}), ("DQN-v0", {**QUICK, "replay_device": "device"})):
        other = make_agent(discrete_spec(), id=id, learner=True, **parameters)
        assert not other.experience.joins_blocks
    for constraints in ((), ("heat <= 1",)):  # multipliers take a step with each block
        sac = make_agent(continuous_spec(), id="SAC-v0", learner=True, constraints=constraints)
        sac._updates_made = 1
        assert sac.joins_blocks() is not bool(constraints)


def test_what_a_subclass_does_with_each_block_is_done_with_each() -> None:
    agent = make_agent(discrete_spec(), learner=True, **QUICK)
    agent.train(blocks_of(agent, 1)[0])

    class Own(DQN):
        def train(self, block: Block) -> Any:
            return super().train(block)

    agent.__class__ = Own
    assert not agent.joins_blocks()


def test_a_team_trains_one_by_one() -> None:
    agent = make_agent(discrete_spec(), **QUICK)
    agent.join_team(ThreadTeam(Meeting(2), 0, 1))
    agent.set_learner()
    assert not agent.experience.joins_blocks
