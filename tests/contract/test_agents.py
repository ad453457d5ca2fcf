"""What every registered agent promises: one body, all agents.

A new agent adds its ``Case``: parameters with which it learns the toys in seconds, and how it tells
the value of an observation. An agent for any actions has a second case with continuous ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.envs import Aim, Constant, Drift, Identity, Pushed
from support.learning import (
    adapter_of,
    assert_same_arrays,
    assert_same_block,
    collect,
    learn,
    make_agent,
    make_rollout,
    through_storage,
)

from exarl import registry
from exarl.agents.algorithm import part
from exarl.errors import CheckpointError
from exarl.learning.exploration import Streams
from exarl.types import Block

GAMMA, HORIZON = 0.9, 5


def q_value(agent: Any, observations: np.ndarray) -> float:
    """Of the best action."""
    return float(agent.algorithm.q_values(np, params_of(agent), observations).max())


def critics_value(agent: Any, observations: np.ndarray) -> float:
    """The lesser critic's, of what the policy does."""
    actions = agent.action(observations)[0]
    params, extra = params_of(agent), None if agent.spec.n_actions else actions
    outputs = [
        agent.algorithm.networks[name].apply(np, part(params, name), observations, extra)[0]
        for name in (n for n in agent.algorithm.networks if n[0] == "q")
    ]
    return float(np.min(outputs, 0)[actions[0] if agent.spec.n_actions else 0])


def quantile_value(agent: Any, observations: np.ndarray) -> float:
    """The mean of the quantiles of all critics, of what the policy does."""
    actions = agent.action(observations)[0]
    params = params_of(agent)
    outputs = [
        agent.algorithm.networks[name].apply(np, part(params, name), observations, actions)[0]
        for name in (n for n in agent.algorithm.networks if n[0] == "q")
    ]
    return float(np.mean(outputs))


def network_value(agent: Any, observations: np.ndarray) -> float:
    params = part(params_of(agent), "value")
    return float(agent.algorithm.networks["value"].apply(np, params, observations)[0, 0])


def mean_value(agent: Any, observations: np.ndarray) -> float:
    """The lesser critic's mean, of what the policy does."""
    actions, params = agent.action(observations)[0], params_of(agent)
    algorithm, hyper = agent.algorithm, agent.hyper
    outputs = [algorithm.apply(np, params, n, observations, actions) for n in ("q1", "q2")]
    return float(min(algorithm._values(np, hyper, each)[0] for each in outputs))


def params_of(agent: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(array) for name, array in agent.train_state.params.items()}


@dataclass(frozen=True)
class Case:
    """How to exercise one agent. ``toy`` is what it learns ``identity`` and ``constant`` with: both
    then share their compiled updates."""

    quick: dict[str, Any] = field(default_factory=dict)
    toy: dict[str, Any] = field(default_factory=dict)
    identity: dict[str, Any] = field(default_factory=dict)
    constant: dict[str, Any] = field(default_factory=dict)
    identity_blocks: int = 20
    constant_blocks: int = 30
    value: Callable[[Any, np.ndarray], float] = network_value
    continuous: bool = False
    learns: bool = True

    def drift(self) -> Drift:
        return Pushed() if self.continuous else Drift()

    def aim(self) -> Aim | Identity:
        return Aim() if self.continuous else Identity()


QUICK = {"learning_starts": 30, "batch_size": 8, "updates_per_step": 0.25}
REPLAY = {"gamma": GAMMA, "batch_size": 32, "learning_rate": 5e-3, "tau": 0.05}
CONTROL = {**REPLAY, "hidden": (32,), "policy_learning_rate": 1e-3}

WINDOWS = {"n_step": 3}
ENSEMBLE = {"critics": 4, "policy_value": "mean"}

dqn = Case(
    quick=QUICK,
    toy={**REPLAY, "loss": "mse"},  # the Huber loss would settle nearer the median of the targets
    identity={"learning_starts": 64, "epsilon_steps": 600},
    constant={"learning_starts": 0, "epsilon_min": 1.0},
    value=q_value,
)
ddpg = Case(
    quick=QUICK,
    toy=CONTROL,
    identity={"learning_starts": 256, "noise": 0.3},
    constant={"learning_starts": 0},
    value=critics_value,
    continuous=True,
)
sac = Case(
    quick=QUICK,
    toy={**REPLAY, "learn_alpha": False, "updates_per_step": 0.5},
    identity={"learning_starts": 64, "alpha": 0.05},
    constant={"learning_starts": 0, "alpha": 1e-6},
    value=critics_value,
)
DREAMS = {
    "model_hidden": (16,),
    "model_members": 3,
    "model_elites": 2,
    "model_batch_size": 32,
    "rollouts_per_step": 4,
}
dreaming = {**DREAMS, "real_ratio": 0.5}
mbpo = replace(
    sac,
    quick={**QUICK, **DREAMS},
    toy={**sac.toy, **dreaming},
    identity={**sac.identity, "imagined_capacity": 1000},
)
a2c = Case(
    quick={"learning_rate": 0.01},
    toy={"gamma": GAMMA, "max_grad_norm": None, "learning_rate": 0.05, "entropy_scale": 0.01},
    identity_blocks=60,
    constant_blocks=200,
)
ppo = Case(
    quick={"epochs": 2, "learning_rate": 0.01},
    toy={
        "gamma": GAMMA,
        "max_grad_norm": None,
        "learning_rate": 0.01,
        "epochs": 4,
        "minibatches": 4,
        "entropy_scale": 0.05,
    },
    identity_blocks=30,
    constant_blocks=50,
)
crossq = Case(
    quick={**QUICK, "updates_per_step": 0.5},
    toy={**CONTROL, "tau": 0.005, "learn_alpha": False, "learning_rate": 3e-3},
    identity={"learning_starts": 64, "alpha": 0.05},
    constant={"learning_starts": 0, "alpha": 1e-6},
    value=mean_value,
    continuous=True,
)
xqc = replace(
    crossq,
    toy={**crossq.toy, "tau": 0.05, "value_limit": 15.0, "updates_per_step": 1.0},
)
pqn = Case(
    quick={"epochs": 2, "learning_rate": 0.01},
    toy={
        "gamma": GAMMA,
        "q_lambda": 0.65,
        "learning_rate": 5e-3,
        "minibatches": 4,
        "hidden": (32,),
    },
    identity={"epsilon_steps": 600},
    constant={"epsilon_min": 1.0},
    constant_blocks=40,
    value=q_value,
)
CASES = {
    "DQN-v0": dqn,
    "DQN-v0 windows": replace(dqn, quick={**QUICK, "n_step": 20}, toy={**dqn.toy, **WINDOWS}),
    "DDPG-v0": ddpg,
    "TD3-v0": ddpg,
    "TD3-v0 windows": replace(ddpg, quick={**QUICK, "n_step": 20}, toy={**CONTROL, **WINDOWS}),
    "SAC-v0": sac,
    "SAC-v0 continuous": replace(sac, continuous=True),
    "SAC-v0 ensemble": replace(
        sac, quick={**QUICK, **ENSEMBLE, "dropout": 0.01}, toy={**sac.toy, **ENSEMBLE}
    ),
    "TQC-v0": replace(
        sac,
        continuous=True,
        toy={**sac.toy, "quantiles": 5, "quantiles_dropped": 0},
        value=quantile_value,
    ),
    "QRDQN-v0": replace(dqn, toy={**REPLAY, "quantiles": 5}, value=q_value),
    "CrossQ-v0": crossq,
    "XQC-v0": xqc,
    "PQN-v0": pqn,
    "MBPO-v0": mbpo,
    "MBPO-v0 continuous": replace(
        mbpo,
        continuous=True,
        quick={**mbpo.quick, "base": "TD3-v0", "base_parameters": ("noise=0.3",), "horizon": 3},
    ),
    "A2C-v0": a2c,
    "A2C-v0 continuous": replace(a2c, continuous=True),
    "A3C-v0": replace(a2c, toy={**a2c.toy, "adam_eps": None}),
    "PPO-v0": ppo,
    "PPO-v0 continuous": replace(
        ppo,
        continuous=True,
        toy={"learning_rate": 5e-3, "epochs": 4, "minibatches": 4, "hidden": (32,)},
    ),
    "Random-v0": Case(learns=False),
    "Random-v0 continuous": Case(learns=False, continuous=True),
    # Its own tests show that it learns: from returns of whole episodes, so not in these toys.
    "Search-v0": Case(quick={"generation": 1000}, learns=False),
    "Search-v0 continuous": Case(quick={"generation": 1000}, learns=False, continuous=True),
}
LEARNING = [name for name, case in CASES.items() if case.learns]
VALUING = [name for name in LEARNING if name not in ("A2C-v0 continuous", "PPO-v0 continuous")]
"""Their value networks see no actions, so that the discrete cases stand for both."""

SLOW = ("MBPO-v0", "MBPO-v0 continuous", "XQC-v0", "SAC-v0 ensemble")
"""What they are made of, others have too, and compiling them takes a while."""


def over(names: Iterable[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in names]
    )


learning, valuing, every = over(LEARNING), over(VALUING), over(CASES)


def id_of(name: str) -> str:
    return name.split(maxsplit=1)[0]


def test_every_agent_has_its_case() -> None:
    tried = {registry.agents.load(id_of(name)) for name in CASES}
    for id in registry.agents.ids():
        assert registry.agents.load(id) in tried, f"give {id} a Case in {__file__}"


@cache
def quick_run(name: str, again: int = 0) -> tuple[Any, list[Block], np.ndarray]:
    """A learner, the blocks it saw, and the weights it ended with."""
    case = CASES[name]
    agent, blocks = learn(
        lambda _: case.drift(), id=id_of(name), blocks=6, limit=20, seed=1, **case.quick
    )
    return agent, blocks, agent.get_weights()


def constant_value(name: str, length: int | None, limit: int | None) -> float:
    case = CASES[name]
    agent, _ = learn(
        lambda _: Constant(length, case.aim()),
        id=id_of(name),
        blocks=case.constant_blocks,
        steps=20,
        limit=limit,
        **{**case.toy, **case.constant},
    )
    return case.value(agent, np.ones((1, *agent.spec.observation.shape), np.float32))


@every
def test_same_seed_same_run_another_seed_another(name: str) -> None:
    (agent, blocks, weights), (_, same_blocks, same) = quick_run(name), quick_run(name, again=1)
    for block, twin in zip(blocks, same_blocks, strict=True):
        assert_same_block(block, twin)
    np.testing.assert_array_equal(weights, same)
    case = CASES[name]
    other = make_agent(agent.spec, id=id_of(name), seed=2, **case.quick)
    rollout = make_rollout(other, lambda _: case.drift(), range(4), steps=16, limit=20, seed=2)
    assert not np.array_equal(collect(rollout).actions, blocks[0].actions)
    if case.learns:
        first = make_agent(agent.spec, id=id_of(name), seed=1, **case.quick).get_weights()
        assert np.abs(first - other.get_weights()).max() > 1e-3
        assert np.abs(first - weights).max() > 1e-3


@every
def test_a_restored_learner_continues_as_if_nothing_had_happened(name: str) -> None:
    learner, blocks, _ = quick_run(name)
    stored = through_storage(*learner.state())
    again = make_agent(learner.spec, id=id_of(name), seed=9, learner=True, **CASES[name].quick)
    again.restore(*stored)
    for block in blocks[:3]:
        assert learner.train(block) == again.train(block)
    np.testing.assert_array_equal(learner.get_weights(), again.get_weights())
    assert_same_arrays(learner.state()[0], again.state()[0])


@learning
def test_saved_weights_carry_the_policy(name: str, tmp_path: Path) -> None:
    learner, blocks, _ = quick_run(name)
    learner.save(tmp_path / "weights.safetensors")
    actor = make_agent(learner.spec, id=id_of(name), seed=9, **CASES[name].quick)
    seen = np.concatenate([block.observations[:-1, 0] for block in blocks])
    before = actor.action(seen)[0]
    actor.load(tmp_path / "weights.safetensors")
    learner.set_weights(learner.get_weights())
    np.testing.assert_array_equal(actor.action(seen)[0], learner.action(seen)[0])
    assert not np.array_equal(before, actor.action(seen)[0])
    with pytest.raises(CheckpointError):
        actor.load(tmp_path / "no such file")


@every
def test_training_reports_what_the_agent_declares(name: str) -> None:
    learner, blocks, _ = quick_run(name)
    metrics = learner.train(blocks[0])
    assert (metrics.pop("updates") >= 1) is CASES[name].learns
    assert set(metrics) <= set(learner.metrics)
    assert all(np.isfinite(value) for value in metrics.values())


@learning
@pytest.mark.parametrize("seed", range(3))
def test_learns_the_identity_in_seconds(name: str, seed: int) -> None:
    """The observation names the action that is rewarded: chance gets a quarter of the discrete
    ones, and is 2/3 wide of the continuous ones."""
    case = CASES[name]
    agent, blocks = learn(
        lambda _: case.aim(),
        id=id_of(name),
        blocks=case.identity_blocks,
        steps=20,
        seed=seed,
        **{**case.toy, **case.identity},
    )
    if not case.continuous:
        assert blocks[0].rewards.mean() < 0.5
        assert agent.action(np.eye(4, dtype=np.float32))[0].tolist() == [0, 1, 2, 3]
        return
    assert blocks[0].rewards.mean() < -0.4
    aims = np.linspace(-0.7, 0.7, 15, dtype=np.float32)[:, None]
    assert np.abs(agent.action(aims)[0] - aims).mean() < 0.2  # always 0: 0.37


@valuing
def test_a_reward_cut_by_a_time_limit_has_its_full_value(name: str) -> None:
    """Truncation bootstraps: V = r / (1 - gamma), however short the episodes are cut."""
    value = constant_value(name, length=None, limit=HORIZON)
    assert value == pytest.approx(1 / (1 - GAMMA), rel=0.05)


@valuing
def test_a_reward_that_ends_has_the_value_of_its_horizon(name: str) -> None:
    """Termination does not bootstrap. The steps of an episode look alike, so their one value lies
    between the mean of their returns and the fixed point of one-step bootstrapping."""
    value = constant_value(name, length=HORIZON, limit=None)
    returns = [(1 - GAMMA**k) / (1 - GAMMA) for k in range(1, HORIZON + 1)]
    assert 0.9 * np.mean(returns) < value < 1.15 / (1 - GAMMA * (1 - 1 / HORIZON))


@every
def test_acting_alone_needs_no_learner(name: str) -> None:
    case, seen = CASES[name], np.zeros((3, 2), np.float32)
    spec = adapter_of(case.drift(), registry.agents.load(id_of(name)).action_kind).spec
    agent = make_agent(spec, id=id_of(name), **case.quick)
    for streams in (None, Streams(0, range(3))):
        actions, recorded = agent.action(seen, streams)
        assert actions.shape == (3, *spec.action.shape)
        if case.continuous:
            assert actions.dtype == np.float32
        else:
            assert set(actions.tolist()) <= set(range(3))
    assert {n: a.shape for n, a in recorded.items()} == {
        n: (3, *s.shape) for n, s in agent.recorded.items()
    }
