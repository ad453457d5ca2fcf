"""One iteration of training as one compiled program: environments, acting, replay and updates."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from exarl.agents import compiled
from exarl.agents.compiled import jax, jnp
from exarl.agents.learned import Learned
from exarl.envs.device import DeviceEnvs, World


class Carry(NamedTuple):
    """All that an iteration leaves to the next."""

    learned: Any  # the agent's learning half
    moments: Any  # of its normalisers
    world: World
    memory: dict[str, Any]  # of the policy, [B, ...]
    returns: Any  # [B], discounted, for the normalisation of rewards
    window: Any  # returns and lengths of the last episodes, newest first; NaN: none yet
    key: Any


class Found(NamedTuple):
    """What the host is told of an iteration."""

    metrics: dict[str, Any]
    episodes: Any  # how many have ended
    returns: Any  # [W] of the newest of them, newest first; NaN: none
    lengths: Any
    mean: Any  # over the window: return and length
    finite: Any  # whether all observations and rewards were
    sound: Any  # whether the policy's weights are finite


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trajectory:
    """A block's arrays within the program."""

    observations: Any  # [T + 1, B, ...]
    following: Any  # [T, B, ...], where each step truly led
    actions: Any
    rewards: Any
    terminated: Any
    truncated: Any
    recorded: Mapping[str, Any]

    @property
    def steps(self) -> int:
        return int(self.rewards.size)

    @property
    def ended(self) -> Any:
        return self.terminated | self.truncated

    def next_observations(self) -> Any:
        return self.following


class Draws:
    """Random numbers for all environments, of one key."""

    def __init__(self, key: Any, width: int) -> None:
        self._key, self._width = key, width

    def uniform(self, count: int) -> Any:
        self._key, key = jax.random.split(self._key)
        return jax.random.uniform(key, (self._width, count))

    def normal(self, count: int) -> Any:
        self._key, key = jax.random.split(self._key)
        return jax.random.normal(key, (self._width, count))


@dataclass(frozen=True)
class Program:
    """An agent in many environments; ``start`` and ``iterate`` are pure functions of arrays."""

    agent: Learned
    envs: DeviceEnvs
    n_envs: int
    block_steps: int
    window: int

    def start(self, params: Any, seed: Any, parameters: Mapping[str, Any]) -> Carry:
        """Before the first iteration; the networks begin with ``params``."""
        agent = with_parameters(self.agent, parameters)
        learned, moments = agent.first_state(compiled, params), agent.moments()
        begun, key = jax.random.split(jax.random.key(seed))
        memory = {n: jnp.zeros((self.n_envs, *s.shape), s.dtype) for n, s in agent.memory.items()}
        nothing = jnp.full((2, self.window), jnp.nan, jnp.float32)
        world = self.envs.begin(begun, self.n_envs)
        returns = jnp.zeros(self.n_envs, jnp.float32)
        carry = Carry(learned, moments, world, memory, returns, nothing, jax.random.key_data(key))
        block = jax.eval_shape(lambda: self._roll(agent, carry, jnp.float32(0), key)[1])
        learned = agent.equipped(compiled, learned, block)
        return Carry(*compiled.to_device(carry._replace(learned=learned)))

    def iterate(self, carry: Carry, steps: Any, parameters: Mapping[str, Any]) -> Any:
        """Roll ``block_steps`` steps in every environment and learn from them: Carry and Found.

        ``steps`` counts those made before; ``parameters`` take the place of the agent's own.
        """
        agent = with_parameters(self.agent, parameters)
        key = jax.random.wrap_key_data(carry.key)
        key, rolling, learning = jax.random.split(key, 3)
        carry, block, ends = self._roll(agent, carry, steps, rolling)
        learned, moments = agent.followed(jnp, carry.learned, carry.moments, block)
        made = steps + block.steps
        learned, metrics = agent.fused(compiled, learned, block, made, learning)
        fresh = newest(block.ended, ends, self.window)
        window = merged(fresh, carry.window)
        finite = jnp.isfinite(block.rewards).all()
        if jnp.issubdtype(block.observations.dtype, jnp.floating):
            finite &= jnp.isfinite(block.following).all()
        found = Found(
            {**metrics, **agent.schedules(made, jnp)},
            block.ended.sum(),
            *fresh,
            jnp.nanmean(window, 1),
            finite,
            jnp.stack([jnp.isfinite(a).all() for a in agent.shown(learned).values()]).all(),
        )
        key = jax.random.key_data(key)
        return carry._replace(learned=learned, moments=moments, window=window, key=key), found

    def _acting(self, agent: Learned, carry: Carry, steps: Any) -> Any:
        now = {f"now/{name}": value for name, value in agent.schedules(steps, jnp).items()}
        norm = {}
        if agent.config.normalize_observations:
            stored = carry.learned["norm"]
            norm = {"norm/mean": stored["mean"], "norm/std": stored["std"]}
        return agent.by_part({**agent.shown(carry.learned), **norm, **now})

    def _roll(self, agent: Learned, carry: Carry, steps: Any, key: Any) -> Any:
        """The carry after ``block_steps`` steps of all environments, their block, and at each step
        the episode's return and length so far."""

        def step(state: Any, key: Any) -> Any:
            world, memory, returns = state
            drawn, stepping = jax.random.split(key)
            rng = Draws(drawn, self.n_envs)
            seen = world.observation
            actions, recorded, after = agent.act(jnp, acting, seen, rng, memory)
            recorded |= {f"memory/{n}": memory[n] for n in memory if f"memory/{n}" in wanted}
            world, outcome = self.envs.step(world, actions, stepping)
            ended = outcome.terminated | outcome.truncated
            memory = {n: _zeroed(ended, a) for n, a in {**memory, **after}.items()}
            if discount is not None:
                returns = discount * returns + outcome.reward
                recorded["discounted_return"] = returns
                returns = _zeroed(ended, returns)
            return (world, memory, returns), (seen, actions, outcome, recorded)

        acting = self._acting(agent, carry, steps)
        wanted, discount = agent.recorded, agent.return_discount
        keys = jax.random.split(key, self.block_steps)
        begun = (carry.world, carry.memory, carry.returns)
        (world, memory, returns), (seen, actions, outcome, recorded) = jax.lax.scan(
            step, begun, keys
        )
        block = Trajectory(
            jnp.concatenate([seen, world.observation[None]]),
            outcome.following,
            actions,
            outcome.reward,
            outcome.terminated,
            outcome.truncated,
            recorded,
        )
        carry = carry._replace(world=world, memory=memory, returns=returns)
        return carry, block, (outcome.total, outcome.length)


def newest(ended: Any, ends: tuple[Any, Any], count: int) -> tuple[Any, Any]:
    """Of arrays [T, B], what stands where episodes ended: the newest ``count``, newest first."""
    backwards = ended.reshape(-1)[::-1]
    count = min(count, backwards.size)
    places = jnp.nonzero(backwards, size=count, fill_value=-1)[0]
    returns, lengths = (
        jnp.where(places < 0, jnp.nan, array.reshape(-1)[::-1][places].astype(jnp.float32))
        for array in ends
    )
    return returns, lengths


def merged(fresh: tuple[Any, Any], window: Any) -> Any:
    """The window [2, W] after newer episodes, newest first."""
    both = jnp.concatenate([jnp.stack(fresh), window], 1)
    order = jnp.argsort(jnp.isnan(both[0]), stable=True)[: window.shape[1]]
    return both[:, order]


def with_parameters(agent: Learned, parameters: Mapping[str, Any]) -> Learned:
    """The agent with some of its parameters replaced, by numbers or by arrays being compiled."""
    if not parameters:
        return agent
    other = copy.copy(agent)
    other.config = dataclasses.replace(agent.config, **parameters)
    if other.return_discount is not None:
        other.return_discount = other.config.gamma
    return other


def _zeroed(where: Any, array: Any) -> Any:
    return jnp.where(where.reshape(-1, *[1] * (array.ndim - 1)), 0, array)
