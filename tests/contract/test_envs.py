"""What every environment of EXARL's own promises: one body, all environments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from support.learning import through_storage
from support.programs import CC, cartpole, pendulum, serving
from support.surrogates import written

from exarl.envs.base import can_snapshot
from exarl.envs.check import check_environment
from exarl.envs.registration import find_spec, make_env, packaged_ids
from exarl.envs.spaces import adapt
from exarl.errors import ConfigError

QUICK: dict[str, dict[str, Any]] = {
    "ExaCH-v0": {"grid": 8, "box": 47.0, "shells": 4, "step_time": 2e-5},
    "ExaCH3D-v0": {"grid": 8, "layers": 4, "shells": 4, "step_time": 0.004},
    "ExaLatency-v0": {"mean_seconds": 1e-5, "distribution": "exponential", "episode_steps": 40},
    "ExaWaterClusterDiscrete-v0": {
        "n_waters": 2,
        "target": -1000.0,
        "shift": 0.5,
        "shake": 0.0,
        "tolerance": 20.0,
    },
}
"""Parameters that make an environment fast enough for a test, or possible at all."""
LEARNED = "ExaSurrogate-v0"
"""An environment whose parameter is a folder."""
OUTSIDE = ("ExaClient-v0", "ExaExternal-v0", "ExaRemote-v0")
"""Environments that live in another program."""
NEEDS_AN_EXTRA = "ExaTetrisNES-v0"
STEPS = 120
SEEDS = (0, 1, 2)

Seen = list[tuple[np.ndarray, float, bool, bool]]


@pytest.fixture(params=[id for id in packaged_ids() if id != NEEDS_AN_EXTRA])
def id(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name in OUTSIDE:
        request.getfixturevalue("programs")
    if name == LEARNED:
        request.getfixturevalue("learned")
    return name


@pytest.fixture(scope="module")
def programs() -> Iterator[None]:
    """A cart in C for those that live in another program, and a server of it."""
    if CC is None:
        pytest.skip("no C compiler")
    pytest.importorskip("zmq")
    with serving([cartpole()]) as server:
        QUICK["ExaClient-v0"] = {"command": pendulum()}
        QUICK["ExaExternal-v0"] = {"command": cartpole()}
        QUICK["ExaRemote-v0"] = {"address": server.address}
        yield


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> None:
    QUICK[LEARNED] = {"path": str(written(tmp_path_factory.mktemp("surrogate")))}


def made(id: str) -> gymnasium.Env[Any, Any]:
    return make_env(id, QUICK.get(id, {}))[0]


def flat(env: gymnasium.Env[Any, Any], observation: Any) -> np.ndarray:
    return np.asarray(gymnasium.spaces.flatten(env.observation_space, observation), float)


def sampled(env: gymnasium.Env[Any, Any], seed: int, count: int) -> list[Any]:
    env.action_space.seed(seed)
    return [env.action_space.sample() for _ in range(count)]


def stepped(env: gymnasium.Env[Any, Any], actions: list[Any]) -> Seen:
    """What is seen until the episode or the actions end."""
    seen: Seen = []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append((flat(env, observation), float(reward), bool(terminated), bool(truncated)))
        if terminated or truncated:
            break
    return seen


def assert_same(one: Seen, other: Seen) -> None:
    assert len(one) == len(other)
    for (seen, *rest), (again, *rest_again) in zip(one, other, strict=True):
        np.testing.assert_array_equal(seen, again)
        assert rest == rest_again


@pytest.mark.filterwarnings("ignore::UserWarning")  # Gymnasium's remarks on style
def test_gymnasiums_checker(id: str) -> None:
    check_env(made(id).unwrapped, skip_render_check=True)


def test_our_own_check_finds_nothing(id: str) -> None:
    findings = check_environment(id, QUICK.get(id, {}))
    assert [finding for finding in findings if finding.passed is False] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_same_seed_same_episode_another_seed_another(id: str, seed: int) -> None:
    envs = [made(id) for _ in range(2)]
    actions = sampled(envs[0], seed, STEPS)
    envs[1].reset(seed=77)
    stepped(envs[1], actions[:9])  # a past that must not matter
    starts = [env.reset(seed=seed)[0] for env in envs]
    np.testing.assert_array_equal(flat(envs[0], starts[0]), flat(envs[1], starts[1]))
    one, other = (stepped(env, actions) for env in envs)
    assert_same(one, other)
    start = envs[1].reset(seed=seed + 1000)[0]
    another = stepped(envs[1], actions)
    assert not (
        np.array_equal(flat(envs[0], starts[0]), flat(envs[1], start))
        and len(one) == len(another)
        and all(np.array_equal(a[0], b[0]) for a, b in zip(one, another, strict=True))
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_observations_and_rewards_hold_their_contract_over_episodes(id: str, seed: int) -> None:
    env = made(id)
    observation, _ = env.reset(seed=seed)
    for action in sampled(env, seed, STEPS):
        assert env.observation_space.contains(observation)
        assert np.isfinite(flat(env, observation)).all()
        observation, reward, terminated, truncated, info = env.step(action)
        assert np.isfinite(reward)
        assert not (terminated and truncated)
        assert isinstance(info, dict)
        if terminated or truncated:
            observation, _ = env.reset(seed=seed + 1)


def test_episodes_end_or_are_cut(id: str) -> None:
    if find_spec(id).max_episode_steps is not None:
        return
    env = made(id)
    env.reset(seed=0)
    *_, last = stepped(env, sampled(env, 0, 20 * STEPS))
    assert last[2] or last[3]


@pytest.mark.parametrize("before", [0, 1, 7])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_snapshot_continues_in_another_environment(id: str, before: int, seed: int) -> None:
    env, other = made(id), made(id)
    if not can_snapshot(env):
        pytest.skip("no snapshots: its episodes are played again from their seed")
    actions = sampled(env, seed, STEPS)
    env.reset(seed=seed)
    assert len(stepped(env, actions[:before])) == before, "choose a seed that lives longer"
    stored, _ = through_storage(env.unwrapped.get_state())  # type: ignore[attr-defined]
    other.reset(seed=seed + 50)
    stepped(other, actions[:3])
    other.unwrapped.set_state(stored)  # type: ignore[attr-defined]
    expected = stepped(env, actions[before:])
    assert_same(expected, stepped(other, actions[before:]))
    other.unwrapped.set_state(stored)  # type: ignore[attr-defined]
    assert_same(expected, stepped(other, actions[before:]))  # the snapshot itself is unchanged


def test_some_agent_can_use_its_spaces(id: str) -> None:
    env = made(id)
    kinds = []
    for kind in ("discrete", "continuous"):
        try:
            adapter = adapt(
                id,
                env.observation_space,
                env.action_space,
                action_kind=kind,
                nactions=5,
                max_episode_steps=None,
            )
        except ConfigError:
            continue
        kinds.append(kind)
        seen = adapter.encode(env.reset(seed=0)[0])
        assert np.shape(seen) == adapter.spec.observation.shape
        if adapter.spec.n_actions:
            assert env.action_space.contains(adapter.decode(adapter.spec.n_actions - 1))
    assert kinds
