"""How agents explore, from outside: actions with a random stream against those of the greedy policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.learning import continuous_spec, make_agent, random_block

from exarl.learning.exploration import Streams

SPEC = continuous_spec()
WIDTH, ACTIONS = 5, 2
QUICK = {"batch_size": 4, "updates_per_step": 0.1, "replay_capacity": 100}


def observations(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(WIDTH, 3)).astype(np.float32)


def streams(seed: int = 7) -> Streams:
    return Streams(seed, range(WIDTH))


def acting(id: str, trained: int = 0, **parameters: Any) -> Any:
    """An actor with the weights of a learner after ``trained`` blocks of 16 steps."""
    learner = make_agent(SPEC, id=id, learner=True, **parameters)
    for seed in range(trained):
        learner.train(random_block(SPEC, seed))
    actor = make_agent(SPEC, id=id, **parameters)
    actor.set_weights(learner.get_weights())
    return actor


@pytest.mark.parametrize("id", ["DDPG-v0", "TD3-v0"])
@pytest.mark.parametrize("size", [0.0, 0.3, 5.0])
def test_gaussian_noise_is_added_and_actions_stay_in_bounds(id: str, size: float) -> None:
    actor = acting(id, noise=size, learning_starts=0)
    greedy, recorded = actor.action(observations())
    assert not recorded
    found, _ = actor.action(observations(), streams())
    expected = np.clip(greedy + size * streams().normal(ACTIONS), -1, 1)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_noise_of_ornstein_and_uhlenbeck_remembers() -> None:
    theta, size = 0.25, 0.2
    actor = acting("DDPG-v0", exploration="ou", ou_theta=theta, noise=size, learning_starts=0)
    memory = {name: spec.zeros(WIDTH) for name, spec in actor.memory.items()}
    ours, theirs = streams(), streams()
    noise = np.zeros((WIDTH, ACTIONS))
    for seed in range(4):
        found, _ = actor.action(observations(seed), theirs, memory)
        fresh = size * np.sqrt(1 - (1 - theta) ** 2)
        noise = (1 - theta) * noise + fresh * ours.normal(ACTIONS)
        greedy, _ = actor.action(observations(seed), None, dict(memory))
        np.testing.assert_allclose(found, np.clip(greedy + noise, -1, 1), atol=1e-5)
        np.testing.assert_allclose(memory["ou"], noise, atol=1e-5)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("theta", [0.15, 0.6, 1.0])
def test_the_noise_of_ornstein_and_uhlenbeck_has_its_standard_deviation(
    seed: int, theta: float
) -> None:
    """That of the stationary process, of many environments long after they began."""
    size, width = 0.3, 400
    actor = acting("DDPG-v0", exploration="ou", ou_theta=theta, noise=size, learning_starts=0)
    memory = {name: spec.zeros(width) for name, spec in actor.memory.items()}
    random, seen = Streams(seed, range(width)), np.zeros((width, 3), np.float32)
    found = []
    for step in range(120):
        actor.action(seen, random, memory)
        if step >= 40:
            found.append(memory["ou"].copy())
    assert np.std(found) == pytest.approx(size, rel=0.03)
    assert np.mean(found) == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("id", ["DDPG-v0", "SAC-v0"])
def test_before_learning_starts_actions_are_uniform(id: str) -> None:
    for trained, uniform in ((0, True), (1, True), (2, False)):
        actor = acting(id, trained, learning_starts=2 * 16, **QUICK)
        found, _ = actor.action(observations(), streams())
        expected = 2 * streams().uniform(ACTIONS) - 1
        assert np.allclose(found, expected, atol=1e-6) is uniform


@pytest.mark.parametrize(("trained", "size"), [(0, 0.8), (1, 0.6), (2, 0.4), (4, 0.0), (5, 0.0)])
def test_noise_falls_linearly_to_its_end(trained: int, size: float) -> None:
    falling = {"noise": 0.8, "noise_end": 0.0, "noise_steps": 4 * 16, "learning_starts": 0}
    actor = acting("DDPG-v0", trained, **falling, **QUICK)
    greedy, _ = actor.action(observations())
    found, _ = actor.action(observations(), streams())
    expected = np.clip(greedy + size * streams().normal(ACTIONS), -1, 1)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_soft_policy_draws_around_its_greedy_action() -> None:
    """Undone, the squashing shows a Gaussian: its deviation follows from the observation alone."""
    actor = acting("SAC-v0", learning_starts=0)
    centre = np.arctanh(actor.action(observations())[0].astype(float))
    deviations = []
    for seed in (1, 2, 3):
        drawn = np.arctanh(actor.action(observations(), streams(seed))[0].astype(float))
        deviations.append((drawn - centre) / streams(seed).normal(ACTIONS))
    assert (np.array(deviations) > 0).all()
    np.testing.assert_allclose(deviations[1:], [deviations[0]] * 2, rtol=1e-3)


@pytest.mark.parametrize("id", ["PPO-v0", "A2C-v0"])
def test_a_gaussian_policy_records_the_probability_of_its_actions(id: str) -> None:
    actor = acting(id, log_std=-0.7)
    mean, _ = actor.action(observations())
    found, recorded = actor.action(observations(), streams())
    np.testing.assert_allclose(found, mean + np.exp(-0.7) * streams().normal(ACTIONS), atol=1e-5)
    expected = stats.norm.logpdf(found, mean, np.exp(-0.7)).sum(-1)
    np.testing.assert_allclose(recorded["log_prob"], expected, rtol=1e-4)
