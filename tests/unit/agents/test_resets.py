"""Networks begin again after so many updates, the same ones in every run, and nothing else changes."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from support.learning import continuous_spec, make_agent, random_block, through_storage

from exarl import ExaLearner
from exarl.agents.resets import resets_before
from exarl.errors import ConfigError
from exarl.learning.exploration import LEARNER, generator

SPEC = continuous_spec((3,), 2)
TWO = {"batch_size": 8, "learning_starts": 0, "updates_per_step": 1 / 8}
"""Updates a block."""
WORDS: dict[str, Any] = {"id": "SAC-v0", "learner": True, "reset_interval": 3, **TWO}


def params_of(agent: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(array) for name, array in agent.train_state.params.items()}


def is_near(agent: Any, before: dict[str, np.ndarray], name: str) -> bool:
    """Whether a network is two updates from what it was, and no more."""
    now = params_of(agent)
    return all(np.abs(now[n] - before[n]).max() < 1e-2 for n in now if n.startswith(name))


@pytest.mark.parametrize(
    ("interval", "updates", "resets"), [(3, 0, 0), (3, 3, 0), (3, 4, 1), (3, 6, 1), (3, 7, 2)]
)
def test_a_reset_comes_between_two_updates(interval: int, updates: int, resets: int) -> None:
    assert resets_before(interval, updates) == resets


def test_all_begins_again_but_the_replay_and_the_counts() -> None:
    agent = make_agent(SPEC, **WORDS)
    told = []
    for block in range(5):
        before = params_of(agent)
        told.append(agent.train(random_block(SPEC, block))["resets"])
        stays = told[-1] == (told[-2] if block else 0)
        assert {is_near(agent, before, part) for part in ("q1", "q2", "policy")} == {stays}
    assert told == [0, 1, 1, 2, 3]  # after 3, 6 and 9 of 10 updates
    arrays, numbers = agent.state()
    assert (int(arrays["updates"]), numbers["updates"]) == (10, 10)
    assert int(arrays["replay/size"]) == 80
    counts = {int(a) for n, a in arrays.items() if n.startswith("optimizer/") and "count" in n}
    assert counts == {2}
    first = agent.algorithm.init(generator(agent.seed, LEARNER, 2, 3), agent.hyper)
    assert is_near(agent, first, "")
    assert not np.array_equal(first["q1/0/w"], agent._first["q1/0/w"])


def test_the_networks_chosen_begin_again_alone() -> None:
    agent = make_agent(SPEC, **WORDS, reset_networks=("q1", "q2"))
    agent.train(random_block(SPEC, 0))
    before = params_of(agent)
    assert agent.train(random_block(SPEC, 1))["resets"] == 1
    assert is_near(agent, before, "policy")
    assert is_near(agent, before, "log_alpha")
    assert not is_near(agent, before, "q")
    target = {n: np.asarray(a) for n, a in agent.train_state.target.items()}
    assert max(np.abs(target[n] - params_of(agent)[n]).max() for n in target) < 1e-2


@pytest.mark.parametrize("device", ["host", pytest.param("device", marks=pytest.mark.slow)])
def test_a_restored_learner_makes_the_same_resets(device: str) -> None:
    make = partial(make_agent, SPEC, **WORDS, replay_device=device)
    agent, again = make(), make()
    agent.train(random_block(SPEC, 0))
    again.restore(*through_storage(*agent.state()))
    for block in range(1, 4):
        assert agent.train(random_block(SPEC, block)) == again.train(random_block(SPEC, block))
    for one, other in zip(*(jax.tree.leaves(a.train_state) for a in (agent, again)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_network_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="reset_networks has no 'q3' to reset; there are log_alp"):
        make_agent(SPEC, **{**WORDS, "learner": False}, reset_networks=("q3",))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"workflow": "fused", "reset_interval": 5}, "reset_interval cannot be used in workflow"),
        ({"reset_networks": ("q",)}, "reset_networks needs a reset_interval"),
    ],
)
def test_resets_that_cannot_be_are_refused(words: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        ExaLearner(argv=[], env="CartPole-v1", serial=True, progress=False, **words).run()
