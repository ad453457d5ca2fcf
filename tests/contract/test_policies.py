"""Several policies as one agent, and steps at which an agent was not there."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import exarl
from exarl.agents.base import ExaAgent
from exarl.agents.policies import COMMON, Policies
from exarl.learning.exploration import Streams
from exarl.types import ABSENT, Arrays, ArraySpec, Block, EnvSpec, PolicySpec

SEEN, ACTED = ArraySpec((3,), "float32"), ArraySpec((), "int64")
STEPS, WIDTH = 12, 6


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


def spec_of(size: int = 3, actions: int = 4, **others: Any) -> EnvSpec:
    return EnvSpec("x", ArraySpec((size,), "float32"), ACTED, actions, **others)


def several(change: bool = False) -> EnvSpec:
    """A cat with 2 numbers and 3 actions beside two mice with 3 numbers and 4 actions."""
    cat, mouse = spec_of(2, 3, agents_change=change), spec_of(3, 4, agents_change=change)
    policies = PolicySpec("cat", (0,), cat), PolicySpec("mouse", (1, 2), mouse)
    return EnvSpec("x", SEEN, ACTED, None, agents=3, policies=policies, agents_change=change)


def make(agent: str, spec: EnvSpec, **parameters: Any) -> ExaAgent:
    return exarl.make(agent, spec, hidden=[8], **parameters)  # type: ignore[no-any-return]


def block_of(agent: ExaAgent, seed: int = 0) -> Block:
    """A random block of what the agent does, in which episodes end and, where they may, agents go."""
    rng, spec = np.random.default_rng(seed), agent.spec
    width = WIDTH
    observations = rng.normal(size=(STEPS + 1, width, 3)).astype("f4")
    actions = np.zeros((STEPS, width), np.int64)
    recorded = {name: each.zeros(STEPS, width) for name, each in agent.recorded.items()}
    streams = Streams(seed, range(width))
    for t in range(STEPS):
        actions[t], extras = agent.action(observations[t], streams)
        for name, array in extras.items():
            recorded[name][t] = array
    terminated = rng.random((STEPS, width)) < 0.2
    if spec.agents_change:  # from the end of an episode on, for some steps
        absent = recorded[ABSENT]
        for t in range(1, STEPS):
            stays_away = absent[t - 1] & (rng.random(width) < 0.6)
            absent[t] = stays_away | (terminated[t - 1] & (rng.random(width) < 0.7))
            terminated[t] &= ~absent[t]
    finals = int(terminated.sum())
    return Block(
        observations,
        actions,
        rng.normal(size=(STEPS, width)).astype("f4"),
        terminated,
        np.zeros((STEPS, width), bool),
        rng.normal(size=(finals, 3)).astype("f4"),
        rng.normal(size=finals),
        np.ones(finals, np.int64),
        recorded,
        lead=None if not agent.lead_steps else unknown(agent),
    )


def unknown(agent: ExaAgent) -> Any:
    from exarl.types import unknown_steps

    return unknown_steps(agent.spec, agent.lead_steps, WIDTH)


def scrambled(block: Block) -> Block:
    """The block with other numbers where agents were not there."""
    rng, absent = np.random.default_rng(9), block.recorded[ABSENT]
    changed: Arrays = {}
    for name in ("observations", "actions", "rewards"):
        array = np.array(getattr(block, name))
        place = array[:STEPS][absent]
        array[:STEPS][absent] = rng.integers(0, 4, place.shape).astype(place.dtype)
        changed[name] = array
    recorded = dict(block.recorded)
    if "log_prob" in recorded:
        recorded["log_prob"] = np.where(absent, np.float32(-0.3), recorded["log_prob"])
    return dataclasses.replace(block, recorded=recorded, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("agent", "parameters"),
    [
        slow("PPO-v0", {"epochs": 2}),
        slow("DQN-v0", {"n_step": 3, "learning_starts": 1, "batch_size": 8}),
        slow("A2C-v0", {"normalize_observations": True}),
        slow("A2C-v0", {"model_type": "LSTM", "share_network": True}),
        slow("SAC-v0", {"learning_starts": 1, "batch_size": 8, "updates_per_step": 0.1}),
    ],
)
def test_steps_without_the_agent_are_never_learned_from(
    agent: str, parameters: dict[str, Any]
) -> None:
    """Whatever stands there: the weights after it are the same, to the bit."""
    if parameters.get("model_type") == "LSTM":
        learners = [exarl.make(agent, spec_of(agents_change=True), **parameters) for _ in range(2)]
    else:
        learners = [make(agent, spec_of(agents_change=True), **parameters) for _ in range(2)]
    for learner in learners:
        learner.set_learner()
    for seed in range(3):
        block = (
            block_of(learners[0], seed)
            if not learners[0].memory
            else with_memory(learners[0], seed)
        )
        assert block.recorded[ABSENT].any() and not block.recorded[ABSENT][0].any()
        for learner, seen in zip(learners, (block, scrambled(block)), strict=True):
            assert learner.train(seen)["updates"]
    before = make_weights(agent, parameters)
    after = [learner.get_weights() for learner in learners]
    np.testing.assert_array_equal(*after)
    assert len(before) == len(after[0]) and (before != after[0]).any()


def make_weights(agent: str, parameters: dict[str, Any]) -> np.ndarray:
    hidden = {} if parameters.get("model_type") == "LSTM" else {"hidden": [8]}
    made: ExaAgent = exarl.make(agent, spec_of(agents_change=True), **parameters, **hidden)
    return made.get_weights()


def with_memory(agent: ExaAgent, seed: int) -> Block:
    """A block of an agent that acts with an empty memory."""

    class Forgetful:
        spec, recorded, lead_steps = agent.spec, agent.recorded, 0

        @staticmethod
        def action(seen: np.ndarray, streams: Streams) -> Any:
            memory = {name: each.zeros(len(seen)) for name, each in agent.memory.items()}
            return agent.action(seen, streams, memory)

    return block_of(Forgetful(), seed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("agent", "change"), [slow("DQN-v0", True), slow("DQN-v0", False), slow("PPO-v0", True)]
)
def test_each_policy_learns_from_its_agents_alone(agent: str, change: bool) -> None:
    """As agents of their own would from the columns of their agents."""
    parameters = {"n_step": 3, "learning_starts": 1, "batch_size": 8} if agent == "DQN-v0" else {}
    whole = make(agent, several(change), **parameters)
    assert isinstance(whole, Policies)
    block = block_of(whole)
    columns = {"cat": [0, 3], "mouse": [1, 2, 4, 5]}
    whole.set_learner()
    metrics = whole.train(block)
    weights = np.split(whole.get_weights(), whole._edges)
    fresh = make(agent, several(change), **parameters)
    assert isinstance(fresh, Policies)
    ended = np.nonzero(block.ended.T)[0]
    for (name, own), part in zip(fresh.agents.items(), weights, strict=True):
        rows, size = columns[name], fresh._of[name].spec.observation.shape[0]
        picked = np.isin(ended, rows)
        alone = dataclasses.replace(
            block,
            **{
                n: getattr(block, n)[:, rows]
                for n in ("actions", "rewards", "terminated", "truncated")
            },
            observations=block.observations[:, rows, :size],
            final_observations=block.final_observations[picked, :size],
            episode_returns=block.episode_returns[picked],
            episode_lengths=block.episode_lengths[picked],
            recorded={
                key: block.recorded[key if key in COMMON else f"{name}/{key}"][:, rows]
                for key in own.recorded
            },
            lead=None if block.lead is None else _lead(block, rows, size),
        )
        own.set_learner()
        own.train(alone)
        np.testing.assert_array_equal(own.get_weights(), part)
        assert metrics[f"{name}/reward_mean"] == pytest.approx(block.episode_returns[picked].mean())


def _lead(block: Block, rows: list[int], size: int) -> Any:
    assert block.lead is not None
    lead = type(block.lead)(*(np.asarray(array)[:, rows] for array in block.lead))
    return lead._replace(
        observations=lead.observations[..., :size],
        next_observations=lead.next_observations[..., :size],
    )


def test_actions_are_those_of_the_policies_in_any_batch() -> None:
    agent = make("PPO-v0", several())
    assert isinstance(agent, Policies)
    seen = np.random.default_rng(1).normal(size=(9, 3)).astype("f4")
    actions, recorded = agent.action(seen)
    assert not recorded
    for name, rows, size in (("cat", [0, 3, 6], 2), ("mouse", [1, 2, 4, 5, 7, 8], 3)):
        own, _ = agent.agents[name].action(seen[rows, :size])
        np.testing.assert_array_equal(actions[rows], own)
    shifted = agent.get_weights() + 1
    agent.set_weights(shifted)
    np.testing.assert_array_equal(agent.get_weights(), shifted)


def test_policies_begin_differently_and_travel_as_json() -> None:
    twins = tuple(PolicySpec(name, (at,), spec_of()) for at, name in enumerate("ab"))
    spec = EnvSpec("x", SEEN, ACTED, None, agents=2, policies=twins)
    agent = make("A2C-v0", spec)
    assert isinstance(agent, Policies)
    one, other = (each.get_weights() for each in agent.agents.values())
    assert one.shape == other.shape and (one != other).any()
    assert EnvSpec.from_json(spec.to_json()) == spec
