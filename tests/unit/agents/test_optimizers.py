"""Schedules of the step size, and the numbers that each optimiser has."""

from __future__ import annotations

import dataclasses
import inspect
from types import SimpleNamespace
from typing import Any

import numpy as np
import optax
import pytest
from support.learning import (
    assert_same_arrays,
    continuous_spec,
    discrete_spec,
    make_agent,
    random_block,
    through_storage,
)
from support.team import Meeting, ThreadTeam, train_together

from exarl.agents import compiled
from exarl.agents.compiled import jnp
from exarl.agents.engine import Engine
from exarl.agents.optimizers import TAKES, OptimizerConfig, check_optimizer
from exarl.errors import ConfigError
from exarl.learning.exploration import epsilon_at, epsilon_end
from exarl.types import Block, EnvSpec

STEPS = 16  # of a block
TOTAL = 8 * STEPS
BOX, DISCRETE = continuous_spec(), discrete_spec()
ONE = {"batch_size": 4, "learning_starts": 0, "updates_per_step": 1 / STEPS}
FIRST, END = 0.02, 0.004
FALLING = {"learning_rate": FIRST, "learning_rate_end": END}


def learner(
    id: str, spec: EnvSpec, total: int | None = None, team: Any = None, **parameters: Any
) -> Any:
    agent = make_agent(spec, id=id, **parameters)
    agent.total_steps = total
    if team is not None:
        agent.join_team(team)
    agent.set_learner()
    return agent


def block_for(agent: Any, seed: int) -> Block:
    recorded = {name: np.zeros((8, 2), kind.dtype) for name, kind in agent.recorded.items()}
    return dataclasses.replace(random_block(agent.spec, seed), recorded=recorded)


def copy_with(agent: Any, **parameters: Any) -> Any:
    """An agent of the same kind that goes on from here with other parameters."""
    spec, total = agent.spec, parameters.pop("total", None)
    other = learner(type(agent).__name__ + "-v0", spec, total, **parameters)
    other.restore(*through_storage(*agent.state()))
    return other


def assert_same_training(agent: Any, other: Any, seed: int = 7) -> None:
    """The next block moves both alike."""
    before = agent.get_weights()
    for one in (agent, other):
        one.train(block_for(one, seed))
    ours, theirs = agent.get_weights() - before, other.get_weights() - before
    assert np.abs(ours).max() > 1e-4
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("id", "spec", "own", "schedule"),
    [
        ("DQN-v0", DISCRETE, {**ONE, "replay_device": "device"}, {"learning_rate_fraction": 0.5}),
        ("DQN-v0", DISCRETE, ONE, {"learning_rate_updates": 4}),
        ("TD3-v0", BOX, ONE, {"learning_rate_fraction": 0.5}),
        ("TD3-v0", BOX, ONE, {"learning_rate_updates": 4}),
        ("SAC-v0", BOX, ONE, {"learning_rate_fraction": 0.5}),
        ("PPO-v0", BOX, {}, {"learning_rate_fraction": 0.5}),
    ],
)
def test_every_loss_follows_the_schedule(
    id: str, spec: EnvSpec, own: dict[str, Any], schedule: dict[str, float]
) -> None:
    """Halfway through it; also the policy of TD3, which has made half as many steps as the critics."""
    agent = learner(id, spec, TOTAL, **FALLING, **schedule, **own)
    for seed in range(2):
        agent.train(block_for(agent, seed))
    assert_same_training(agent, copy_with(agent, learning_rate=(FIRST + END) / 2, **own))


def test_a_longer_run_follows_its_own_length() -> None:
    schedule = {**FALLING, "learning_rate_fraction": 1.0}
    agent = learner("A2C-v0", BOX, 2 * STEPS, **schedule)
    for seed in range(2):
        agent.train(block_for(agent, seed))
    longer = copy_with(agent, total=TOTAL, **schedule)
    assert_same_training(agent, copy_with(agent, learning_rate=END))
    assert_same_training(longer, copy_with(longer, learning_rate=FIRST - (FIRST - END) / 4))


@pytest.mark.parametrize("every", [1, 2])
def test_a_team_follows_it_by_the_steps_of_all(every: int) -> None:
    def make_team(**parameters: Any) -> list[Any]:
        meeting = Meeting(2)
        teams = [ThreadTeam(meeting, index, every) for index in range(2)]
        return [learner("A2C-v0", BOX, 128, team, **parameters) for team in teams]

    ours = make_team(**FALLING, learning_rate_fraction=0.5)
    theirs = make_team(learning_rate=(FIRST + END) / 2)
    train_together(ours, [block_for(agent, seed) for seed, agent in enumerate(ours)])
    for one, other in zip(ours, theirs, strict=True):
        other.restore(*through_storage(*one.state()))
    for agents in (ours, theirs):
        train_together(agents, [block_for(agents[0], 5), None])
    np.testing.assert_allclose(ours[1].get_weights(), theirs[1].get_weights(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("end", [None, 0.0, 0.003])
def test_the_end_of_a_schedule_is_a_tenth_of_the_losss_own_step_size(end: float | None) -> None:
    rates = {"learning_rate": 0.02, "policy_learning_rate": 0.05, "learning_rate_end": end}
    agent = make_agent(BOX, id="DDPG-v0", learner=True, learning_rate_updates=4, **ONE, **rates)
    engine, state = Engine(agent.algorithm), agent.train_state._replace(updates=jnp.int32(9))
    found = [float(engine.step_size(agent.hyper, state, loss)) for loss in agent.algorithm.losses]
    assert found == pytest.approx([0.002, 0.005] if end is None else [end, end])


def test_without_a_schedule_nothing_is_added_to_the_state() -> None:
    plain, falling = learner("A2C-v0", BOX), learner("A2C-v0", BOX, TOTAL, learning_rate_fraction=1)
    for agent in (plain, falling):
        agent.train(block_for(agent, 0))
    assert plain.train_state.progress is None
    assert set(plain.state()[0]) == set(falling.state()[0])


@pytest.mark.parametrize(
    ("words", "steps", "updates", "expected"),
    [
        ({}, 10**9, 10**9, None),
        ({"learning_rate_fraction": 0.5}, 63, 9, None),
        ({"learning_rate_fraction": 0.5}, 64, 9, "its end, 0.0001, at step 64 of 128"),
        ({"learning_rate_updates": 9}, 1234, 8, None),
        ({"learning_rate_updates": 9, "learning_rate_end": 3e-5}, 1234, 9, "its end, 3e-05, at"),
    ],
)
def test_what_is_trained_beyond_the_end_of_a_schedule_is_known(
    words: dict[str, float], steps: int, updates: int, expected: str | None
) -> None:
    agent = make_agent(DISCRETE, learning_rate=1e-3, **words)
    agent.total_steps = 128
    line = agent.ended_schedules(steps, updates).get("the step size")
    assert line is None if expected is None else expected in line


def test_without_total_steps_a_fraction_of_them_leaves_the_step_size_as_it_is() -> None:
    agent = make_agent(
        DISCRETE, learner=True, learning_rate=1e-3, learning_rate_fraction=0.5, **ONE
    )
    agent.train(block_for(agent, 0))
    assert agent.train_state.progress is None
    assert (
        "stays 0.001: its schedule needs total_steps"
        in agent.ended_schedules(9, 9)["the step size"]
    )


@pytest.mark.parametrize(
    ("id", "spec", "words", "name", "before", "line"),
    [
        ("DQN-v0", DISCRETE, {"epsilon_steps": 50, "epsilon_min": 0.1}, "epsilon", (49, 9), "0.1, at"),
        ("DQN-v0", DISCRETE, {"epsilon_decay": 0.5, "epsilon_min": 0.1}, "epsilon", (3, 9), "0.1, at"),
        ("TD3-v0", BOX, {"noise_end": 0.02, "noise_steps": 50}, "noise", (49, 9), "0.02, at"),
        (
            "SAC-v0", BOX, {"priority_scale": 0.5, "priority_updates": 7}, "priority_beta", (99, 6),
            "1, at",
        ),
    ],
)  # fmt: skip
def test_every_schedule_says_that_it_is_over(
    id: str, spec: EnvSpec, words: dict[str, float], name: str, before: tuple[int, int], line: str
) -> None:
    agent = make_agent(spec, id=id, **words)
    agent.total_steps = 128
    steps, updates = before
    assert name not in agent.ended_schedules(steps, updates)
    assert (
        f"{name} has reached its end, {line}" in agent.ended_schedules(steps + 1, updates + 1)[name]
    )
    agent.swept = ("epsilon_min", "noise_end", "priority_scale")
    assert name not in agent.ended_schedules(steps + 1, updates + 1)


@pytest.mark.parametrize(
    "words", [(1.0, 0.05, 0.9995, 0), (0.3, 0.02, 0.9, 0), (1.0, 0.1, 1.0, 70)]
)
def test_epsilon_reaches_its_end_when_it_is_said_to(words: tuple[float, float, float, int]) -> None:
    last = int(epsilon_end(*words))
    assert epsilon_at(last, *words) == pytest.approx(words[1])
    assert epsilon_at(last - 1, *words) > 1.00001 * words[1]


@pytest.mark.parametrize("words", [(0.1, 0.1, 0.9, 0), (0.1, 0.1, 0.9, 50), (0.05, 0.1, 0.9, 0)])
def test_an_epsilon_that_never_changes_has_no_end(words: tuple[float, float, float, int]) -> None:
    assert epsilon_end(*words) == 0


# -- numbers of optimisers ------------------------------------------------------------------------


@pytest.mark.parametrize("name", TAKES)
def test_the_table_of_numbers_is_that_of_optax(name: str) -> None:
    there = inspect.signature(getattr(optax, name)).parameters
    options = {"eps": "adam_eps", "b1": "betas", "weight_decay": "weight_decay"}
    assert TAKES[name] == tuple(ours for theirs, ours in options.items() if theirs in there)


@pytest.mark.parametrize("name", TAKES)
def test_numbers_reach_the_optimiser(name: str) -> None:
    given: dict[str, Any] = {"adam_eps": 0.5, "betas": (0.95, 0.1), "weight_decay": 0.7}
    options = {"adam_eps": {"eps": 0.5}, "betas": {"b1": 0.95, "b2": 0.1}}
    options["weight_decay"] = {"weight_decay": 0.7}
    params, gradient = {"w": jnp.ones((2, 2))}, {"w": jnp.array([[1.0, -2], [3, 0.1]])}

    def moved(optimiser: optax.GradientTransformation) -> np.ndarray:
        state, steps = optimiser.init(params), []
        for turn in range(8):
            now = {"w": gradient["w"] * np.cos(turn)}
            step, state = optimiser.update(now, state, params)
            steps.append(step["w"])
        return np.stack(steps)

    for number in TAKES[name]:
        ours = moved(compiled.optimizer(name, 0.1, None, **{number: given[number]}))
        theirs = moved(getattr(optax, name)(0.1, **options[number]))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        assert not np.allclose(ours, moved(compiled.optimizer(name, 0.1, None)))


@pytest.mark.parametrize(
    ("words", "total", "swept", "message"),
    [
        ({"optimizer": "sgd"}, 1, ("adam_eps",), "optimizer 'sgd' has no adam_eps"),
        ({"betas": (0.9, 0.99), "optimizer": "rmsprop"}, 1, (), "'rmsprop' has no betas"),
        ({"weight_decay": 0.0}, 1, (), "'adam' has no weight_decay: .* choose adamw, lion"),
        ({}, 1, ("weight_decay",), "'adam' has no weight_decay"),
        ({}, None, ("learning_rate_fraction",), "is a part of total_steps"),
        ({"learning_rate_fraction": 1, "learning_rate_updates": 5}, 9, (), "two schedules"),
    ],
)
def test_numbers_without_effect_are_refused(
    words: dict[str, Any], total: int | None, swept: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        check_optimizer(OptimizerConfig(**words), total, swept)
    assert "\n" not in str(refused.value)


def test_an_optimiser_without_eps_leaves_the_agents_out() -> None:
    check_optimizer(OptimizerConfig(optimizer="sgd", adam_eps=1e-3), 1)
    params = {"w": jnp.ones((2, 2))}
    steps = [
        optimiser.update(params, optimiser.init(params), params)[0]["w"]
        for optimiser in (compiled.optimizer("sgd", 0.1, None, adam_eps=1.0), optax.sgd(0.1))
    ]
    np.testing.assert_array_equal(*steps)


def test_an_agent_refuses_them_before_a_run_and_as_a_learner() -> None:
    agent = make_agent(DISCRETE, optimizer="sgd", weight_decay=1e-3)
    run: Any = SimpleNamespace(total_steps=None, block_steps=8, workflow="sync")
    with pytest.raises(ConfigError, match="no weight_decay"):
        type(agent).check(agent.config, run, learners=1, lags=False)
    with pytest.raises(ConfigError, match="no weight_decay"):
        agent.set_learner()


# -- SAC ------------------------------------------------------------------------------------------


def parts_of(agent: Any) -> dict[str, np.ndarray]:
    groups = {"critics": ("q1/", "q2/"), "policy": ("policy/",), "temperature": ("log_alpha",)}
    params = agent.train_state.params
    return {
        name: np.concatenate([np.ravel(a) for n, a in params.items() if n.startswith(heads)])
        for name, heads in groups.items()
    }


@pytest.mark.parametrize("spec", [BOX, DISCRETE], ids=["box", "discrete"])
def test_the_parts_of_sac_have_step_sizes_and_norms_of_their_own(spec: EnvSpec) -> None:
    """Plain descent along gradients that are all cut to one norm shows the step sizes."""
    rates = {"learning_rate": 1.0, "policy_learning_rate": 3.0, "temperature_learning_rate": 7.0}
    plain = {"optimizer": "sgd", "max_grad_norm": 1e-3, **ONE}
    agent = make_agent(spec, id="SAC-v0", learner=True, **plain, **rates)
    before = parts_of(agent)
    agent.train(block_for(agent, 0))
    moved = {name: np.linalg.norm(a - before[name]) for name, a in parts_of(agent).items()}
    assert moved == pytest.approx({"critics": 1e-3, "policy": 3e-3, "temperature": 7e-3}, rel=1e-2)


def test_a_state_with_one_optimiser_for_all_of_sac_is_taken_over() -> None:
    agent = make_agent(BOX, id="SAC-v0", learner=True, **ONE)
    agent.train(block_for(agent, 0))
    arrays, numbers = through_storage(*agent.state())
    former = {}
    for name, array in arrays.items():
        head, _, rest = name.partition("/")
        one = f"optimizer/all/{rest.partition('/')[2]}" if head == "optimizer" else name
        former[one] = array
    former["optimizer/all/schedule/count"] = np.int32(1)
    assert len(former) < len(arrays)
    other = make_agent(BOX, id="SAC-v0", seed=9, learner=True, **ONE)
    other.restore(former, numbers)
    assert_same_arrays(other.state()[0], arrays)
