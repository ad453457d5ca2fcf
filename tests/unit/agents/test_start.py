"""What a learner takes from another run: the parts asked for, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.envs import Aim, Identity
from support.learning import adapter_of, learn, make_agent, through_storage

from exarl.types import Arrays, EnvSpec

ENVS: dict[str, Any] = {"DQN-v0": Identity, "SAC-v0": Aim, "PPO-v0": Identity}
CONFIGS: dict[str, dict[str, Any]] = {
    "DQN-v0": {"learning_starts": 1, "batch_size": 4},
    "SAC-v0": {"learning_starts": 1, "batch_size": 4, "normalize_observations": True},
    "PPO-v0": {"epochs": 1, "minibatches": 1, "normalize_observations": True},
}


def spec_of(id: str) -> EnvSpec:
    return adapter_of(ENVS[id](), "continuous" if id == "SAC-v0" else "discrete").spec


def trained(id: str) -> Any:
    return learn(lambda _: ENVS[id](), id=id, blocks=3, width=2, seed=1, **CONFIGS[id])[0]


def begun(id: str, stored: Arrays, *parts: str) -> Arrays:
    agent = make_agent(spec_of(id), id=id, seed=2, learner=True, **CONFIGS[id])
    agent.start(stored, parts)
    arrays: Arrays = agent.state()[0]
    return arrays


def same(one: Arrays, other: Arrays, prefix: str) -> bool:
    names = [name for name in one if name.startswith(prefix)]
    assert names
    return all(np.array_equal(one[name], other[name]) for name in names)


@pytest.mark.parametrize(
    ("id", "policy", "critic"),
    [("DQN-v0", "params/q/", None), ("SAC-v0", "params/policy/", "params/q"),
     ("PPO-v0", "params/policy/", "params/value/")],
)  # fmt: skip
def test_each_part_is_taken_when_asked_for(id: str, policy: str, critic: str | None) -> None:
    stored, _ = through_storage(*trained(id).state())
    alone = begun(id, stored, "policy")
    assert same(alone, stored, policy)
    assert not any(np.asarray(alone[n]).any() for n in alone if n.endswith("/count") and "opt" in n)
    if "target/q/0/w" in alone and critic is None:
        assert same(
            alone, {n.replace("params/", "target/"): a for n, a in alone.items()}, "target/"
        )
    if critic is not None:
        assert not same(alone, stored, critic)
        both = begun(id, stored, "policy", "critics", "optimizer")
        assert same(both, stored, "params/")
        assert same(both, stored, "optimizer/")
        assert same(begun(id, stored, "critics"), stored, critic)
        assert not same(begun(id, stored, "critics"), stored, policy)
    if CONFIGS[id].get("normalize_observations"):
        assert same(alone, stored, "seen/"), "the policy is of no use without them"


def test_a_replay_is_taken_with_its_rows() -> None:
    stored, _ = through_storage(*trained("DQN-v0").state())
    assert same(begun("DQN-v0", stored, "policy", "replay"), stored, "replay/rows/")


def test_acting_is_that_of_the_other_run() -> None:
    there = trained("SAC-v0")
    here = make_agent(spec_of("SAC-v0"), id="SAC-v0", seed=2, learner=True, **CONFIGS["SAC-v0"])
    here.start(there.state()[0], ["policy"])
    seen = (
        np.random.default_rng(0).normal(size=(5, *there.spec.observation.shape)).astype(np.float32)
    )
    for agent in (there, here):
        agent.set_weights(agent.get_weights())
    np.testing.assert_array_equal(there.action(seen)[0], here.action(seen)[0])


def test_the_weights_alone_are_enough_for_a_policy() -> None:
    stored = trained("DQN-v0").state()[0]
    assert same(begun("DQN-v0", {"weights": stored["weights"]}, "policy"), stored, "params/q/")


@pytest.mark.parametrize(
    ("id", "part", "hidden", "lost", "said"),
    [
        ("PPO-v0", "replay", 8, "", "has no replay"),
        ("DQN-v0", "policy", 9, "", r"is \[4, 8\] in the checkpoint, \[4, 9\] in this run"),
        ("DQN-v0", "optimizer", 8, "/mu/", "optimizer/.*/mu/.* is not in the checkpoint"),
        ("SAC-v0", "policy", 8, "seen/", "without the statistics of observations"),
    ],
)
def test_what_does_not_fit_is_said(id: str, part: str, hidden: int, lost: str, said: str) -> None:
    stored = {n: a for n, a in trained(id).state()[0].items() if not lost or lost not in n}
    agent = make_agent(spec_of(id), id=id, hidden=(hidden,), learner=True, **CONFIGS[id])
    with pytest.raises(ValueError, match=said):
        agent.start(stored, [part])
