"""Many functional environments at once, as pure functions to be compiled together with a policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces

from exarl.envs.functional import step_info
from exarl.envs.info import LISTED, logged_of
from exarl.envs.masks import METHOD, own_space
from exarl.envs.spaces import SpaceAdapter, decoder
from exarl.errors import ConfigError
from exarl.types import ArraySpec

Sums = dict[str, Any]
"""Of numbers of info in an episode: sum, count, last, min and max [..., 5], by name."""


class World(NamedTuple):
    """B environments in the middle of their episodes; arrays [B, ...]."""

    state: Any  # the environment's own
    observation: Any
    length: Any  # of the episode so far
    total: Any  # its reward so far
    told: Sums | None = None  # the numbers of info that are logged, so far
    costs: Any = None  # [B, C], the sums of those that are limited


class Outcome(NamedTuple):
    """What a step of all environments gave, [B, ...]."""

    following: Any  # the observation it truly led to
    reward: Any
    terminated: Any
    truncated: Any
    total: Any  # the episode's reward with this step
    length: Any
    told: Sums | None = None  # as in World, with this step
    costs: Any = None  # [B, 2, C], of this step and of the episode with it


def functions_of(env: Any) -> Any:
    """The pure functions behind an environment, over jax.numpy; ConfigError if there are none."""
    inner = env.unwrapped
    if hasattr(inner, "make"):  # ours, see envs/functional.py
        return inner.make(xp=jnp)
    if hasattr(inner, "func_env"):  # a Gymnasium FunctionalJaxEnv
        return inner.func_env
    if (twin := _twin(inner)) is not None:
        return twin
    raise ConfigError(
        f"{type(inner).__name__} is not given as pure functions (a Gymnasium FuncEnv), which the"
        " device needs: use another workflow, or see docs/extending.md"
    )


def _twin(env: Any) -> Any:
    """The functions that Gymnasium provides for two of its environments; they take no parameters."""
    from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv

    if type(env).step is CartPoleEnv.step and not env._sutton_barto_reward:
        return _cart_pole()
    if type(env).step is PendulumEnv.step and env.g == 10.0:
        from gymnasium.envs.phys2d.pendulum import PendulumFunctional

        return PendulumFunctional()
    return None


def _cart_pole() -> Any:
    """Gymnasium's functions with the mass of CartPole-v1: theirs adds the pole's length to its mass,
    where the product is meant."""
    from gymnasium.envs.phys2d.cartpole import CartPoleFunctional, CartPoleParams

    class Params(CartPoleParams):
        polemass_length: float = CartPoleParams.masspole * CartPoleParams.length

    class CartPole(CartPoleFunctional):
        def transition(self, state: Any, action: Any, rng: Any = None, params: Any = Params) -> Any:
            return super().transition(state, action, rng, params)

    return CartPole()


@dataclass(frozen=True)
class DeviceEnvs:
    """The functions of one environment, mapped over many of it."""

    functions: Any
    decode: Callable[[Any], Any]
    limit: int | None
    frames: int
    dtype: str
    masked: bool = False
    logged: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        env: Any,
        adapter: SpaceAdapter,
        log_info: Sequence[str] = (),
        costs: Sequence[str] = (),
    ) -> DeviceEnvs:
        """``log_info`` names the numbers of info that are summed up, ``costs`` those that are limited.

        ConfigError where the environment cannot be on a device, or has not one of the ``costs``.
        """
        functions, seen = functions_of(env), own_space(env.observation_space)
        if not isinstance(seen, spaces.Box):
            raise ConfigError(f"on the device observations are a Box, not {seen}")
        decode = decoder(adapter, env.action_space, jnp)
        spec = adapter.spec
        limit, frames, dtype = spec.max_episode_steps, adapter.frames, spec.observation.dtype
        masked = seen is not env.observation_space
        if masked and not hasattr(functions, METHOD):
            raise ConfigError(
                f"on the device an action mask comes from {METHOD}(state) of the functions: add it, or"
                " leave the mask out with --drop_observations action_mask"
            )
        envs = cls(functions, decode, limit, frames, dtype, masked)
        if not log_info and not costs:
            return envs
        there = envs.info_names(adapter.spec.action)
        if missing := [name for name in costs if name not in there]:
            raise ConfigError(
                f"the environment's info has no number '{missing[0]}', which constraints limit; it has"
                f" {', '.join(there[:8]) or 'nothing'}"
            )
        return replace(envs, logged=logged_of(there, log_info), costs=tuple(costs))

    def info_names(self, action: ArraySpec) -> tuple[str, ...]:
        """The names of all numbers that a step has in ``info``."""

        def step(key: Any) -> dict[str, Any]:
            before = self._first(key).state
            taken = self.decode(jnp.asarray(action.zeros(1)[0]))
            after = self.functions.transition(before, taken, key)
            return numbers(step_info(self.functions, before, taken, after))

        try:
            return tuple(jax.eval_shape(step, jax.random.key(0)))
        except TypeError as error:  # such as float() of an array that is being compiled
            raise ConfigError(
                "state_info and transition_info of the functions cannot be compiled, which log_info and"
                f" constraints need on a device: {str(error).splitlines()[0]}"
            ) from error

    def begin(self, key: Any, count: int) -> World:
        """``count`` environments at the start of an episode."""
        return jax.vmap(self._first)(jax.random.split(key, count))  # type: ignore[no-any-return]

    def step(self, world: World, actions: Any, key: Any) -> tuple[World, Outcome]:
        """Step all; where an episode has ended the next one has begun."""
        count = len(world.length)
        now, later = jax.random.split(key)
        after, outcome = jax.vmap(self._next)(world, actions, jax.random.split(now, count))
        ended = outcome.terminated | outcome.truncated

        def renewed() -> World:
            return _chosen(ended, self.begin(later, count), after)

        if getattr(self.functions, "costly_reset", False):
            return jax.lax.cond(ended.any(), renewed, lambda: after), outcome
        return renewed(), outcome

    def _first(self, key: Any) -> World:
        begun, seen = jax.random.split(key)
        # A scan carries arrays of one dtype: that of the first state holds for all.
        found = self.functions.initial(begun)
        state = jax.tree.map(lambda a: jnp.asarray(a, jnp.asarray(a).dtype), found)
        observation = self._seen(state, seen)
        if self.frames > 1:
            observation = jnp.stack([observation] * self.frames)
        told = {name: jnp.array(_NOTHING, jnp.float32) for name in self.logged} or None
        costs = jnp.zeros(len(self.costs), jnp.float32) if self.costs else None
        return World(state, observation, jnp.int32(0), jnp.float32(0), told, costs)

    def _next(self, world: World, action: Any, key: Any) -> tuple[World, Outcome]:
        functions, decoded = self.functions, self.decode(action)
        keys = jax.random.split(key, 4)
        found = functions.transition(world.state, decoded, keys[0])
        state = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), found, world.state)
        paid = functions.reward(world.state, decoded, state, keys[1])
        reward = jnp.asarray(paid, jnp.float32).reshape(())
        terminated = jnp.asarray(functions.terminal(state, keys[2]), bool).reshape(())
        seen = self._seen(state, keys[3])
        if self.frames > 1:
            seen = jnp.concatenate([world.observation[1:], seen[None]])
        told, costs = self._told(world, decoded, state)
        so_far = costs[1] if costs is not None else None
        after = World(state, seen, world.length + 1, world.total + reward, told, so_far)
        at_limit = False if self.limit is None else after.length >= self.limit
        truncated = at_limit & ~terminated
        ends = (terminated, truncated, after.total, after.length)
        return after, Outcome(seen, reward, *ends, told, costs)

    def _told(self, world: World, action: Any, state: Any) -> tuple[Sums | None, Any]:
        """The sums of the numbers of info with a step that led to ``state``, and its costs."""
        if world.told is None and world.costs is None:
            return None, None
        found = numbers(step_info(self.functions, world.state, action, state))
        told = world.told and {name: _added(sums, found[name]) for name, sums in world.told.items()}
        if world.costs is None:
            return told, None
        costs = jnp.stack([found[name] for name in self.costs])
        return told, jnp.stack([costs, world.costs + costs])

    def _seen(self, state: Any, key: Any) -> Any:
        seen = jnp.asarray(self.functions.observation(state, key), self.dtype)
        if not self.masked:
            return seen
        mask = jnp.asarray(self.functions.action_masks(state), self.dtype)
        return jnp.concatenate([seen.ravel(), mask.ravel()])


_NOTHING = (0.0, 0.0, math.nan, math.inf, -math.inf)


def _added(sums: Any, number: Any) -> Any:
    """The sums with a further number, if it is finite."""
    total, count, _, least, most = sums
    added = jnp.stack(
        [
            total + number,
            count + 1,
            number,
            jnp.minimum(least, number),
            jnp.maximum(most, number),
        ]
    )
    return jnp.where(jnp.isfinite(number), added, sums)


def numbers(info: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of ``info`` by name, as ``exarl.envs.info.numbers_in`` names them."""
    found: dict[str, Any] = {}
    for name, value in info.items():
        if isinstance(value, Mapping):
            found |= numbers({f"{name}.{key}": part for key, part in value.items()})
        elif not isinstance(value, str | bytes | None):
            found |= _of_array(name, value)
    return found


def _of_array(name: str, value: Any) -> dict[str, Any]:
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError):  # what is no number
        return {}
    array = array.astype(jnp.float32)
    if not array.ndim:
        return {name: array}
    if array.size > LISTED:
        return {f"{name}.{what}": getattr(array, what)() for what in ("mean", "min", "max")}
    return {f"{name}.{place}": number for place, number in enumerate(array.ravel())}


def _chosen(condition: Any, yes: World, no: World) -> World:
    """One of two worlds, environment by environment."""

    def pick(a: Any, b: Any) -> Any:
        return jnp.where(condition.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, yes, no)  # type: ignore[no-any-return]
