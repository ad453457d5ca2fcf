"""Actions of numbers and choices together: what their policies draw, say and learn from."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from tests.support.separable import Doors, Keys, Stiff, Valves

import exarl
from exarl.agents.a2c import A2C, A2CConfig
from exarl.envs.local import register_local
from exarl.envs.spaces import adapt
from exarl.errors import ConfigError
from exarl.learning.exploration import Streams
from exarl.networks.mlp import MLP, MLPConfig
from exarl.networks.parted import network_of
from exarl.types import EnvSpec

QUICK: dict[str, Any] = {
    "total_steps": 64,
    "block_steps": 32,
    "progress": False,
    "hidden": [8],
    "envs_per_actor": 2,
}


def adapted(seen: spaces.Space[Any]) -> EnvSpec:
    return adapt(
        "E",
        seen,
        Valves.action_space,
        action_kind="any",
        nactions=5,
        max_episode_steps=None,
        masks=True,
        mixed=True,
    ).spec


SPEC = adapted(Valves.observation_space)


def agent(**config: Any) -> A2C:
    def network(outputs: int) -> MLP:
        return MLP(MLPConfig(hidden=(8,)), SPEC.observation, outputs)

    return A2C(SPEC, A2CConfig(log_std=-0.3, **config), network, 1)


def test_the_log_probability_is_the_sum_of_those_of_the_parts() -> None:
    acting = agent()
    seen = np.random.default_rng(0).normal(size=(6, 3)).astype("f4")
    rng = Streams(1, range(6))
    actions, recorded = acting.action(seen, rng)
    assert actions.shape == (6, 6)
    assert actions.dtype == np.float32
    outputs, _ = acting.policy.acting.forward("policy", seen, None)
    outputs, std = np.asarray(outputs, np.float64), math.exp(-0.3)
    entropy = []
    for row, action, said in zip(outputs, actions, recorded["log_prob"], strict=True):
        expected, chaos = 0.0, 3 * (0.5 + 0.5 * math.log(2 * math.pi) - 0.3)
        for mean, number in zip(row[:3], action[:3], strict=True):
            density = math.exp(-0.5 * ((number - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))
            expected += math.log(density)
        for logits, choice in zip(np.split(row[3:10], [3, 5]), action[3:], strict=True):
            chances = np.exp(logits) / np.exp(logits).sum()
            expected += math.log(chances[int(choice)])
            chaos -= float((chances * np.log(chances)).sum())
        assert said == pytest.approx(expected, abs=1e-4)
        entropy.append(chaos)
    learner = acting.algorithm
    said, chaos = learner.log_prob_entropy(  # type: ignore[attr-defined]
        np, {"log_std": np.full(3, -0.3, "f4")}, outputs[:, :10], actions
    )
    np.testing.assert_allclose(said, recorded["log_prob"], atol=1e-4)
    np.testing.assert_allclose(chaos, entropy, atol=1e-4)


def test_all_choices_are_drawn_as_often_as_they_are_likely() -> None:
    acting, count = agent(), 4000
    seen = np.full((count, 3), 0.5, np.float32)
    actions, _ = acting.action(seen, Streams(2, range(count)))
    outputs, _ = acting.policy.acting.forward("policy", seen[:1], None)
    for column, logits in zip(actions[:, 3:].T, np.split(outputs[0, 3:10], [3, 5]), strict=True):
        found = np.bincount(column.astype(int), minlength=len(logits)) / count
        np.testing.assert_allclose(found, np.exp(logits) / np.exp(logits).sum(), atol=0.03)
    np.testing.assert_allclose(actions[:, :3].mean(0), outputs[0, :3], atol=0.05)
    np.testing.assert_allclose(actions[:, :3].std(0), math.exp(-0.3), atol=0.05)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(kind: type[Keys], **parameters: Any) -> Path:
    result = exarl.train(env=kind, **(QUICK | parameters))
    assert result is not None
    return result.run_dir


def test_a_run_is_trained_evaluated_and_loaded(folder: Path) -> None:
    run = trained(Valves, agent="Random-v0")
    assert exarl.evaluate(run, episodes=2) is not None
    policy = exarl.load(run)
    assert policy.action_space == Valves.action_space
    assert Valves.action_space.contains(policy.act(np.ones(3, np.float32)))
    several = policy.act(np.ones((2, 3), np.float32))
    assert [Valves.action_space.contains(action) for action in several] == [True, True]


def test_choices_that_a_mask_forbids_are_not_made(folder: Path) -> None:
    run = trained(Stiff, agent="Random-v0")
    assert exarl.evaluate(run, episodes=2) is not None
    assert Stiff.forbidden == 0
    policy = exarl.load(run)
    action = policy.act(np.ones(3, np.float32), mask=[0, 0, 1, 0, 1, 1, 0])
    assert (action["pump"], *action["locks"][0]) == (3, 1, 0)


def test_policies_give_what_is_forbidden_no_chance() -> None:
    mask = spaces.MultiBinary(7)
    seen = spaces.Dict([("observation", Valves.observation_space), ("action_mask", mask)])
    spec = adapted(seen)
    network: Any = partial(network_of(spec, MLP), MLPConfig(hidden=(8,)), spec.observation)
    acting, rng = A2C(spec, A2CConfig(), network, 1), np.random.default_rng(0)
    rows = rng.normal(size=(300, 10)).astype("f4")
    rows[:, 3:] = rng.integers(0, 2, (300, 7))
    rows[:, [3, 6, 8]] = 1
    for streams in (None, Streams(3, range(300))):
        actions, _ = acting.action(rows, streams)
        chosen = actions[:, 3:].astype(int) + np.array([3, 6, 8])
        assert np.take_along_axis(rows, chosen, 1).all()


@pytest.mark.parametrize("agent", ["SAC-v0", "DQN-v0", "TD3-v0", "DDPG-v0"])
def test_other_agents_name_those_that_can(folder: Path, agent: str) -> None:
    with pytest.raises(ConfigError, match="PPO-v0 and A2C-v0") as caught:
        trained(Valves, agent=agent)
    assert "\n" not in str(caught.value)
    assert not [*folder.glob("*/*")]


@pytest.mark.parametrize("kind", [Valves, Doors])
def test_in_a_process_of_its_own_it_is_the_same(folder: Path, kind: type[Keys]) -> None:
    """The environment there gets a vector and makes its own structure of it."""
    rewards = []
    for isolation in ("inline", "process"):
        run = trained(kind, agent="Random-v0", env_isolation=isolation)
        played = exarl.evaluate(run, episodes=3)
        assert played is not None
        rewards.append(played.reward_mean)
        assert exarl.load(run).action_space == kind.action_space
    assert rewards[0] == rewards[1]


def test_a_controller_acts_there_in_the_structure_of_the_environment(folder: Path) -> None:
    def best(seen: np.ndarray) -> dict[str, Any]:
        a, b, c = (seen > 0).astype(int)
        return {
            "flow": np.array([2 * a - 1, 7], np.float32),
            "pump": 1 + a + b,
            "locks": (np.array([c, 1], np.int8), np.array([2 + 4 * b])),
        }

    for isolation in ("inline", "process"):
        result = exarl.evaluate(best, register_local(Valves), episodes=1, env_isolation=isolation)
        assert result is not None
        assert result.reward_mean == pytest.approx(16)
