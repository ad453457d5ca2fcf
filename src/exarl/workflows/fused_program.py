"""One iteration of training as one compiled program: environments, acting, replay and updates."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from exarl.agents import device_replay
from exarl.agents.agent import NetworkAgent
from exarl.agents.algorithm import (
    Algorithm,
    AlgorithmConfig,
    Hyper,
    TrainState,
)
from exarl.agents.blocks import AnyBlock, steps_of
from exarl.agents.compiled import KeyedNoise, cond, jax, jnp, orders, to_device
from exarl.agents.constraints import COSTS, Constraints, Dual
from exarl.agents.device_replay import Store
from exarl.agents.engine import Engine
from exarl.agents.normalizers import Normalizers
from exarl.agents.offpolicy import OffPolicyConfig, beta_after
from exarl.agents.optimizers import follows_run
from exarl.agents.policy import acting_in_training
from exarl.comm.codec import MOST_TOLD
from exarl.envs.device import DeviceEnvs, Outcome, Sums, World
from exarl.learning.normalise import Moments
from exarl.types import Array, Memory, Metrics, Params, PyTree, Steps

E = TypeVar("E", bound=PyTree)


class Carry(NamedTuple):
    """All that an iteration hands to the next."""

    train: TrainState
    replay: Store | None
    moments: tuple[Moments, Moments]  # of the normalisers
    world: World
    memory: Memory  # of the policy, [B, ...]
    returns: Array  # [B], discounted, for the normalisation of rewards
    window: Array  # returns and lengths of the last episodes, newest first; NaN: none yet
    key: Array
    lead: Steps | None = None  # the newest steps, with which the next block leads
    dual: Dual | None = None  # of the constraints


Rolling: TypeAlias = tuple[World, Memory, Array]
"""What changes from step to step: environments, the policy's memory, discounted returns."""


class Learning(NamedTuple):
    """What an iteration is to learn from its block."""

    made: Array  # all steps, those of the block included
    learns: Array  # whether its updates are made
    updates: int
    key: Array


class IterationReport(NamedTuple):
    """What the host reads of an iteration."""

    metrics: Metrics
    episodes: Array  # how many have ended
    returns: Array  # [W] of the newest of them, newest first; NaN: none
    lengths: Array
    mean: Array  # over the window: return and length
    finite: Array  # whether all observations and rewards were
    sound: Array  # whether the policy's weights are finite
    info: Sums  # [<= 256, 5] of the newest of them, as in ``envs.device``


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trajectory:
    """A block's arrays within the program."""

    observations: Array  # [T + 1, B, ...]
    following: Array  # [T, B, ...], where each step truly led
    actions: Array
    rewards: Array
    terminated: Array
    truncated: Array
    recorded: Mapping[str, Array]
    lead: Steps | None = None

    @property
    def steps(self) -> int:
        return int(self.rewards.size)

    @property
    def ended(self) -> Array:
        return self.terminated | self.truncated

    def next_observations(self) -> Array:
        return self.following


@dataclass(frozen=True)
class FusedProgram:
    """An algorithm in many environments; ``start`` and ``iterate`` are pure functions of arrays.

    Both take ``swept``: parameters that take the place of those in ``hyper``.
    """

    algorithm: Algorithm[AlgorithmConfig]
    hyper: Hyper
    recorded: tuple[str, ...]  # what a block carries beside actions
    envs: DeviceEnvs
    n_envs: int
    block_steps: int
    window: int
    total_steps: int | None

    @classmethod
    def of(
        cls,
        agent: NetworkAgent[AlgorithmConfig],
        envs: DeviceEnvs,
        n_envs: int,
        steps: int,
        window: int,
    ) -> FusedProgram:
        algorithm = agent.algorithm
        config = algorithm.config
        if hasattr(config, "vtrace") and not Normalizers.of(config, algorithm.spec).observations:
            # Nothing lags; but a normalisation moves on between acting and learning from it.
            fresh = dataclasses.replace(config, vtrace=False)  # type: ignore[call-arg]
            algorithm = dataclasses.replace(algorithm, config=fresh)
        recorded, total = tuple(agent.recorded), agent.total_steps
        return cls(algorithm, agent.hyper, recorded, envs, n_envs, steps, window, total)

    def start(self, params: Params, seed: Array, swept: Hyper) -> Carry:
        """Before the first iteration; the networks begin with ``params``."""
        hyper, algorithm, normalizers = {**self.hyper, **swept}, self.algorithm, self._normalizers
        moments = jax.tree.map(jnp.float32, normalizers.first())
        norm, constraints = normalizers.norm(np, normalizers.first()), self._constraints
        dual = jax.tree.map(jnp.float32, constraints.first) if constraints else None
        if dual is not None:
            norm |= constraints.norm(jnp, hyper, dual)
        begun, key = jax.random.split(jax.random.key(seed))
        carry = Carry(
            train=Engine(algorithm).init(hyper, params, norm),
            replay=None,
            moments=moments,
            world=self.envs.begin(begun, self.n_envs),
            memory={
                n: jnp.zeros((self.n_envs, *s.shape), s.dtype) for n, s in algorithm.memory.items()
            },
            returns=jnp.zeros(self.n_envs, jnp.float32),
            window=jnp.full((2, self.window), jnp.nan, jnp.float32),
            key=jax.random.key_data(key),
            dual=dual,
        )
        block = jax.eval_shape(lambda: self._roll(hyper, carry, jnp.float32(0), key)[1])
        carry = carry._replace(
            replay=with_replay(algorithm, hyper, block), lead=self._lead_to(block)
        )
        return Carry(*to_device(carry))

    def iterate(
        self, carry: Carry, steps: Array, learns: Array, swept: Hyper, updates: int
    ) -> tuple[Carry, IterationReport]:
        """Roll ``block_steps`` steps in every environment and make ``updates`` updates, if it
        ``learns``; what is learned from fresh blocks always does.

        ``steps`` counts those made before.
        """
        hyper, algorithm = {**self.hyper, **swept}, self.algorithm
        key = jax.random.wrap_key_data(jnp.asarray(carry.key))
        key, rolling, learning = jax.random.split(key, 3)
        carry, block, ends = self._roll(hyper, carry, steps, rolling)
        carry, limited = self._update_norm(hyper, carry, block, ends.length)
        made = steps + block.steps
        state = carry.train
        if self.total_steps is not None and follows_run(algorithm.config, swept):
            state = state._replace(progress=steps / float(self.total_steps))
        due = Learning(made, learns, updates, learning)
        train, replay, metrics = learn(Engine(algorithm), hyper, state, carry.replay, block, due)
        train = train._replace(progress=None)
        fresh = newest(block.ended, (ends.total, ends.length), self.window)
        told = newest(block.ended, ends.told or {}, min(self.window, MOST_TOLD))
        window = merged(fresh, carry.window)
        finite = jnp.isfinite(block.rewards).all()
        if COSTS in block.recorded:
            finite &= jnp.isfinite(block.recorded[COSTS]).all()
        if jnp.issubdtype(block.observations.dtype, jnp.floating):
            finite &= jnp.isfinite(block.following).all()
        acting = algorithm.acting_params(train.params, train.target)
        report = IterationReport(
            {**metrics, **limited, **algorithm.schedules(jnp, hyper, made)},
            block.ended.sum(),
            *fresh,
            jnp.nanmean(window, 1),
            finite,
            jnp.stack([jnp.isfinite(a).all() for a in acting.values()]).all(),
            told,
        )
        key = jax.random.key_data(key)
        return carry._replace(train=train, replay=replay, window=window, key=key), report

    def _lead_to(self, block: Trajectory) -> Steps | None:
        """The lead of the first block, of which nothing is known, if blocks like this one need one."""
        if not (count := self.algorithm.lead_steps):
            return None
        like = jax.eval_shape(partial(steps_of, jnp), block)
        return Steps(*(jnp.zeros((count, *array.shape[1:]), array.dtype) for array in like))

    @property
    def _normalizers(self) -> Normalizers:
        return Normalizers.of(self.algorithm.config, self.algorithm.spec)

    @property
    def _constraints(self) -> Constraints:
        return Constraints.of(self.algorithm.config)

    def _update_norm(
        self, hyper: Hyper, carry: Carry, block: Trajectory, lengths: Array
    ) -> tuple[Carry, Metrics]:
        """The carry whose normalisers and multipliers have seen a block, with ``lengths`` of episodes
        at each of its steps; and the metrics of the constraints."""
        normalizers, constraints = self._normalizers, self._constraints
        if not (normalizers.used or constraints):
            return carry, {}
        if normalizers.used:
            sums = normalizers.sums(jnp, carry.moments, block)
            carry = carry._replace(moments=normalizers.after(jnp, carry.moments, sums))
        norm, metrics = normalizers.norm(jnp, carry.moments), {}
        if carry.dual is not None:
            ended = constraints.sums(jnp, block.recorded[COSTS], block.ended, lengths)
            dual = constraints.after(jnp, hyper, carry.dual, ended)
            carry = carry._replace(dual=dual)
            norm |= constraints.norm(jnp, hyper, dual)
            metrics = constraints.metrics(jnp, hyper, dual, ended)
        return carry._replace(train=carry.train._replace(norm=norm)), {**metrics}

    def _roll(
        self, hyper: Hyper, carry: Carry, steps: Array, key: Array
    ) -> tuple[Carry, Trajectory, Outcome]:
        """The carry after ``block_steps`` steps of all environments, their block, and what each step
        gave."""
        algorithm = self.algorithm
        acting = acting_in_training(jnp, algorithm, hyper, carry.train, steps)
        discount = hyper["gamma"] if algorithm.config.normalize_rewards else None

        def step(state: Rolling, key: Array) -> tuple[Rolling, PyTree]:
            world, memory, returns = state
            drawn, stepping = jax.random.split(key)
            rng = KeyedNoise(drawn, self.n_envs)
            seen = world.observation
            actions, recorded, after = algorithm.act(jnp, hyper, acting, seen, rng, memory)
            recorded |= {f"memory/{n}": memory[n] for n in memory if f"memory/{n}" in self.recorded}
            world, outcome = self.envs.step(world, actions, stepping)
            ended = outcome.terminated | outcome.truncated
            memory = {n: _zeroed(ended, a) for n, a in {**memory, **after}.items()}
            if outcome.costs is not None:
                recorded[COSTS] = outcome.costs
            if discount is not None:
                returns = discount * returns + outcome.reward
                recorded["discounted_return"] = returns
                returns = _zeroed(ended, returns)
            return (world, memory, returns), (seen, actions, outcome, recorded)

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
            carry.lead,
        )
        if carry.lead is not None:
            carry = carry._replace(lead=steps_of(jnp, block).newest(algorithm.lead_steps))
        carry = carry._replace(world=world, memory=memory, returns=returns)
        return carry, block, outcome


def with_replay(
    algorithm: Algorithm[AlgorithmConfig], hyper: Hyper, block: AnyBlock
) -> Store | None:
    """An empty replay for rows of blocks like this one, if the algorithm learns from one."""
    cfg = algorithm.config
    if not isinstance(cfg, OffPolicyConfig):
        return None
    like = jax.eval_shape(lambda block: algorithm.rows(jnp, hyper, block), block)
    return device_replay.empty(cfg.replay_capacity, like, cfg.priority_scale, seed=0)


def learn(
    engine: Engine,
    hyper: Hyper,
    state: TrainState,
    store: Store | None,
    block: AnyBlock,
    due: Learning,
) -> tuple[TrainState, Store | None, Metrics]:
    """The updates of a block that stays on the device."""
    algorithm, cfg, updates, key = engine.algorithm, engine.algorithm.config, due.updates, due.key
    rows = algorithm.rows(jnp, hyper, block)
    if store is None or not isinstance(cfg, OffPolicyConfig):
        passes, count = algorithm.passes(rows)
        if passes:
            rows = {**rows, "index": algorithm.split(orders(key, passes, count), updates)}
        state, metrics = engine.run_block(hyper, state, rows, updates)
        return state, None, metrics
    filled = device_replay.added(store, rows)
    first = jax.random.randint(key, (), 0, 2**30)  # of the numbers that the draws follow from
    beta = beta_after(jnp, cfg, hyper, due.made * cfg.updates_per_step)

    def train() -> tuple[TrainState, tuple[Array | None, Array | None], Metrics]:
        trained, rated, metrics = engine.run_from_store(
            hyper, state, filled, cfg.batch_size, first, beta, updates
        )
        return trained, (rated.mass, rated.largest), metrics

    def wait() -> tuple[TrainState, tuple[Array | None, Array | None], Metrics]:
        *_, nothing = jax.eval_shape(train)
        nan = jax.tree.map(lambda a: jnp.full(a.shape, np.nan, a.dtype), nothing)
        return state, (filled.mass, filled.largest), nan

    state, (mass, largest), metrics = cond(due.learns, train, wait)
    return state, filled._replace(mass=mass, largest=largest), metrics


def newest(ended: Array, ends: E, count: int) -> E:
    """Of arrays [T, B, ...], what stands where episodes ended: the newest ``count``, newest first; NaN
    where there are fewer."""
    backwards = ended.reshape(-1)[::-1]
    count = min(count, backwards.size)
    places = jnp.nonzero(backwards, size=count, fill_value=-1)[0]

    def at_places(array: Array) -> Array:
        flat = array.reshape(-1, *array.shape[2:])[::-1][places].astype(jnp.float32)
        return jnp.where(places.reshape(-1, *[1] * (flat.ndim - 1)) < 0, jnp.nan, flat)

    found: E = jax.tree.map(at_places, ends)
    return found


def merged(fresh: tuple[Array, Array], window: Array) -> Array:
    """The window [2, W] after newer episodes, newest first."""
    both = jnp.concatenate([jnp.stack(fresh), window], 1)
    order = jnp.argsort(jnp.isnan(both[0]), stable=True)[: window.shape[1]]
    return both[:, order]


def _zeroed(where: Array, array: Array) -> Array:
    return jnp.where(where.reshape(-1, *[1] * (array.ndim - 1)), 0, array)
