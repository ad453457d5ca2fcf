"""Windows of several steps that begin in one block and end in a later one: what replays are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.envs import Drift, Pushed
from support.learning import (
    adapter_of,
    assert_same_arrays,
    collect,
    make_agent,
    make_rollout,
    through_storage,
)
from support.team import Meeting, ThreadTeam, assert_same_state, train_together
from support.transitions import assert_alike, expected_rows, followed, listed, made_in

from exarl import registry
from exarl.types import Arrays, Block

GAMMA, STEPS, N = 0.5, 4, 7  # windows are longer than blocks
OWN = {"gamma": GAMMA, "n_step": N, "learning_starts": 0, "batch_size": 4, "updates_per_step": 0.25}
AGENTS = {"DQN-v0": Drift, "TD3-v0": Pushed}


def agent_of(id: str = "DQN-v0", learner: bool = False, **parameters: Any) -> Any:
    kind = registry.agents.load(id).action_kind
    spec = adapter_of(AGENTS[id](), kind).spec
    return make_agent(spec, id=id, learner=learner, **{**OWN, **parameters})


def blocks_for(id: str, count: int, width: int = 2, **parameters: Any) -> list[Block]:
    """Episodes of at most 9 steps."""
    agent = agent_of(id, **parameters)
    rollout = make_rollout(agent, lambda _: AGENTS[id](), range(width), steps=STEPS, limit=9)
    return [collect(rollout, version) for version in range(count)]


def kept(agent: Any) -> Arrays:
    """The rows of an agent's replay."""
    state = agent.experience.state()
    return {n.removeprefix("rows/"): a for n, a in state.items() if n.startswith("rows/")}


@pytest.mark.parametrize("priority_scale", [0.0, 0.6])
@pytest.mark.parametrize("device", ["host", "device"])
@pytest.mark.parametrize("id", AGENTS)
def test_a_replay_is_given_every_window_once(id: str, device: str, priority_scale: float) -> None:
    agent = agent_of(id, True, replay_device=device, priority_scale=priority_scale)
    blocks = blocks_for(id, 10)
    updates = [agent.train(block)["updates"] for block in blocks]
    assert updates == [0, *[2] * 9]  # the first block completes no window
    assert_alike(listed(kept(agent)), expected_rows(blocks, N, GAMMA))
    assert len(kept(agent)["discount"]) == 2 * (10 * STEPS - N + 1)
    assert np.isfinite(agent.get_weights()).all()


@pytest.mark.parametrize("capacity", [5, 30])
def test_a_ring_on_the_device_keeps_the_rows_of_one_on_the_host(capacity: int) -> None:
    """In their places, also where it turns over with rows that are not known before it."""
    agents = [
        agent_of(learner=True, replay_device=device, replay_capacity=capacity)
        for device in ("host", "device")
    ]
    for block in blocks_for("DQN-v0", 8):
        for agent in agents:
            agent.train(block)
        host, device = map(kept, agents)
        if host:
            host["action"] = host["action"].astype(device["action"].dtype)
            assert_same_arrays(device, host)
        else:
            assert not any(map(len, device.values()))


@pytest.mark.parametrize("device", ["host", "device"])
@pytest.mark.parametrize("before", [1, 2, 5])
def test_a_restored_learner_continues_with_the_windows(device: str, before: int) -> None:
    blocks = blocks_for("DQN-v0", 8)
    agent, other = (agent_of(learner=True, replay_device=device) for _ in range(2))
    for block in blocks[:before]:
        agent.train(block)
    other.restore(*through_storage(*agent.state()))
    for block in blocks[before:]:
        assert agent.train(block) == other.train(block)
    assert_same_arrays(agent.state()[0], other.state()[0])


@pytest.mark.parametrize("device", ["host", "device"])
def test_a_learner_that_is_set_back_waits_for_windows_again(device: str) -> None:
    agent, blocks = agent_of(learner=True, replay_device=device), blocks_for("DQN-v0", 3)
    first = through_storage(*agent.state())
    before = [agent.train(block)["updates"] for block in blocks]
    agent.restore(*first)
    assert [agent.train(block)["updates"] for block in blocks] == before == [0, 2, 2]


@pytest.mark.parametrize("every", [1, 2])
def test_learners_begin_together_once_one_of_them_has_a_window(every: int) -> None:
    meeting = Meeting(2)
    agents = [agent_of() for _ in range(2)]
    for index, agent in enumerate(agents):
        agent.join_team(ThreadTeam(meeting, index, every))
        agent.set_learner()
    first, second, third = blocks_for("DQN-v0", 3)
    before = agents[0].get_weights()
    made = [train_together(agents, pair, 8) for pair in ((first, None), (None, first))]
    assert [[m["updates"] for m in metrics] for metrics in made] == [[0, 0], [0, 0]]
    np.testing.assert_array_equal(agents[1].get_weights()[:-1], before[:-1])  # the last is epsilon
    for pair in ((second, None), (third, second)):
        made = [train_together(agents, pair, 8)]
        assert [m["updates"] for m in made[0]] == [2, 2]
        assert_same_state(agents)
    assert np.abs(agents[0].get_weights() - before)[:-1].max() > 0


def test_targets_of_actors_belong_to_the_windows() -> None:
    """They are made when a window is complete, and stored with the step at which it began."""
    own = {"data_generation": "actor", "loss": "mse"}
    plain, agent = agent_of(), agent_of(learner=True, **own)
    for block in blocks_for("DQN-v0", 6, **own):
        rows = plain.algorithm.rows(np, plain.hyper, block)
        found = agent.algorithm.rows(np, agent.hyper, block)
        weights = {n: np.asarray(a) for n, a in agent._first.items()}
        expected = agent.algorithm.targets(np, weights, weights, rows)
        known = rows["known"]
        assert block.recorded["target"].shape == (STEPS, 2)
        np.testing.assert_allclose(found["target"][known], expected[known], rtol=1e-4, atol=1e-5)
        for name in ("observation", "action", "known"):
            np.testing.assert_array_equal(found[name], rows[name])
        agent.train(block)
    assert len(kept(agent)["target"]) == 2 * (6 * STEPS - N + 1)


def test_rewards_that_are_cut_off_one_by_one_are_those_of_the_window() -> None:
    own = {"normalize_rewards": True, "reward_clip": 0.5}
    agent, blocks = agent_of(**own), blocks_for("DQN-v0", 6, **own)
    expected = []
    for b in range(2):
        steps = made_in(blocks, b)
        for start in range(len(steps) - N + 1):
            single = [followed(steps[start + k : start + k + 1], 1, 1)[0][2] for k in range(N)]
            over = [steps[start + k + 1].begun != steps[start + k].led for k in range(N - 1)]
            length = over.index(True) + 1 if any(over) else N
            expected.append((*steps[start].begun, *single[:length], *[0.0] * (N - length)))
    found = []
    for block in blocks:
        rows = agent.algorithm.rows(np, agent.hyper, block)
        both = np.hstack([rows["observation"], rows["rewards"]])
        found += [tuple(row) for row in both[rows["known"]].tolist()]
    np.testing.assert_allclose(sorted(found), sorted(expected), rtol=1e-6)
