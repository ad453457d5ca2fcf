"""Functional environments on a device: the same as their Gymnasium forms, with episodes cut right."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.experimental.functional import FuncEnv

from exarl.envs.spaces import adapt
from exarl.errors import ConfigError
from exarl.run.build import build_episode
from exarl.run.configure import configure

jax = pytest.importorskip("jax")
from exarl.envs.device import DeviceEnvs, functions_of  # noqa: E402


class State(NamedTuple):
    count: Any
    length: Any


class Countdown(FuncEnv[Any, Any, Any, Any, Any, Any, Any]):
    """Observes its count; ends of itself at ``length``, a number from 2 to 5 drawn at the start."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3, start=4)

    def initial(self, rng: Any, params: Any = None) -> Any:
        return State(0, jax.random.randint(rng, (), 2, 6))

    def transition(self, state: Any, action: Any, rng: Any, params: Any = None) -> Any:
        return state._replace(count=state.count + 1)

    def observation(self, state: Any, rng: Any, params: Any = None) -> Any:
        return jax.numpy.array([state.count], float)

    def reward(self, state: Any, action: Any, next_state: Any, rng: Any, params: Any = None) -> Any:
        return action  # 4, 5 or 6

    def terminal(self, state: Any, rng: Any, params: Any = None) -> Any:
        return state.count == state.length


class Plain(gymnasium.Env[Any, Any]):
    """A Gymnasium environment that has functions."""

    observation_space = Countdown.observation_space
    action_space = Countdown.action_space

    def __init__(self) -> None:
        self.func_env = Countdown()


def device_envs(limit: int | None, frames: int = 1) -> DeviceEnvs:
    env = Plain()
    adapter = adapt(
        "Countdown",
        env.observation_space,
        env.action_space,
        action_kind="discrete",
        nactions=3,
        max_episode_steps=limit,
        frames=frames,
    )
    return DeviceEnvs.of(env, adapter)


@pytest.mark.parametrize("seed", range(3))
def test_episodes_end_at_their_end_or_at_the_limit(seed: int) -> None:
    envs, width = device_envs(limit=4), 32
    world = envs.begin(jax.random.key(seed), width)
    step = jax.jit(envs.step)
    action = np.full(width, 1)
    seen = {True: 0, False: 0}
    for key in jax.random.split(jax.random.key(seed + 10), 12):
        planned, before = np.asarray(world.state.length), np.asarray(world.length)
        world, out = jax.device_get(step(world, action, key))
        np.testing.assert_array_equal(out.length, before + 1)
        np.testing.assert_array_equal(out.following[:, 0], out.length)  # the true next observation
        np.testing.assert_array_equal(out.reward, 5)
        np.testing.assert_array_equal(out.total, 5 * out.length)
        np.testing.assert_array_equal(out.terminated, out.length == planned)
        np.testing.assert_array_equal(out.truncated, (out.length == 4) & (planned > 4))
        ended = out.terminated | out.truncated
        np.testing.assert_array_equal(world.length, np.where(ended, 0, out.length))
        np.testing.assert_array_equal(world.observation[:, 0], world.length)
        np.testing.assert_array_equal(world.total, 5 * world.length)
        seen[True] += int(out.terminated.sum())
        seen[False] += int(out.truncated.sum())
    assert min(seen.values()) > 10


def test_frames_are_stacked_within_an_episode() -> None:
    envs = device_envs(limit=None, frames=3)
    world = envs.begin(jax.random.key(0), 4)
    np.testing.assert_array_equal(world.observation[..., 0], np.zeros((4, 3)))
    for number in range(1, 3):
        world, out = envs.step(world, np.zeros(4, int), jax.random.key(number))
    np.testing.assert_array_equal(out.following[..., 0], [[0, 1, 2]] * 4)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_gymnasiums_twins_are_the_same_environment(env_id: str) -> None:
    chosen = {"env": env_id, "agent": "PPO-v0"}
    env, adapter, _ = build_episode(configure(overrides=chosen))
    envs, inner = DeviceEnvs.of(env, adapter), env.unwrapped
    step = jax.jit(envs.step)
    rng = np.random.default_rng(0)
    for seed in range(5):
        first, _ = env.reset(seed=seed)
        state = np.asarray(inner.state, np.float32)
        world = envs.begin(jax.random.key(seed), 1)._replace(
            state=state[None], observation=first[None]
        )
        for _ in range(20):
            action = adapter.spec.action.zeros() + (
                rng.integers(2) if adapter.spec.n_actions else rng.uniform(-1, 1, 1)
            ).astype(adapter.spec.action.dtype)
            raw, reward, terminated, *_ = env.step(adapter.decode(action))
            world, out = step(world, np.asarray(action)[None], jax.random.key(1))
            np.testing.assert_allclose(out.following[0], raw, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(out.reward[0], reward, rtol=1e-4, atol=1e-4)
            assert bool(out.terminated[0]) == terminated
            if terminated:
                break


def test_an_environment_without_functions_is_refused() -> None:
    with pytest.raises(ConfigError, match="not given as pure functions"):
        functions_of(gymnasium.make("Acrobot-v1"))
    with pytest.raises(ConfigError, match="not given as pure functions"):
        functions_of(gymnasium.make("CartPole-v1", sutton_barto_reward=True))
