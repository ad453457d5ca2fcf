"""A replay beside a learned model of the environment, and policies that learn from both.

With every block the model learns a little further, short rollouts of the present policy in the model
branch from states of the replay, and the policy's updates take their batches from real and imagined
transitions: three compiled calls on the learner's device (Janner et al. 2019, arXiv 1906.08253).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from exarl.agents.algorithm import Acting, Algorithm, AlgorithmConfig, Hyper, TrainState
from exarl.agents.blocks import KNOWN
from exarl.agents.compiled import (
    CompileObserver,
    KeyedNoise,
    from_arrays,
    jax,
    jnp,
    to_arrays,
    to_device,
)
from exarl.agents.device_experience import DeviceReplay
from exarl.agents.device_replay import DeviceRing, Store, add_to_ring, added, batch
from exarl.agents.engine import Engine, summarised, with_weights
from exarl.agents.experience import count_known
from exarl.agents.policy import acting_in_training
from exarl.agents.world_model import Assessment, ModelState, WorldModel
from exarl.types import Array, Arrays, Batch, Metrics, Namespace, Params

log = logging.getLogger(__name__)

LEARN, BRANCH, TEST = (np.uint32(2**31 + purpose) for purpose in range(3))
"""What a random key is for. The policy's updates have keys of the same seed and their number."""


class RewardFunction(Protocol):
    def __call__(
        self, xp: Namespace, observation: Array, action: Array, next_observation: Array
    ) -> Array: ...


class Knowledge(NamedTuple):
    """What is known of an environment and need not be learned; each function is given N steps, actions
    as the environment takes them."""

    reward: RewardFunction | None  # [N], as it is learned: scaled
    terminated: RewardFunction | None  # [N] bool
    own_action: Callable[[Array], Array]  # of an agent's actions


@dataclass(frozen=True)
class Imagination:
    """Rollouts of a policy in a model, as pure functions."""

    algorithm: Algorithm[AlgorithmConfig]
    model: WorldModel
    known: Knowledge

    def rollouts(
        self,
        hyper: Hyper,
        acting: Acting,
        model: tuple[ModelState, Assessment],
        real: DeviceRing,
        imagined: DeviceRing,
        key: Array,
        horizon: Array,
        count: int,
    ) -> DeviceRing:
        """The imagined transitions after ``count`` more rollouts of ``horizon`` steps from states of
        the replay. One ends where its episode terminates, or where its states become unlike any that
        were seen."""
        starts, key = jax.random.split(key)
        places = jax.random.randint(starts, (count,), 0, real.size)
        begun = (jnp.asarray(real.rows["observation"])[places], jnp.ones(count, bool))

        def step(
            number: Array, now: tuple[DeviceRing, tuple[Array, Array]]
        ) -> tuple[DeviceRing, tuple[Array, Array]]:
            imagined, (seen, alive) = now
            drawn, noise = jax.random.split(jax.random.fold_in(key, number))
            rng = KeyedNoise(drawn, count)
            actions, *_ = self.algorithm.act(jnp, hyper, acting, seen, rng, None)
            params = self.model.elites_of(*model, number)
            rows, going = self.step(hyper, model[0], params, seen, actions, noise)
            kept = alive & going
            imagined = add_to_ring(imagined, {**rows, KNOWN: kept})
            alive = kept & (rows["discount"] > 0)
            return imagined, (rows["next_observation"], alive)

        return jax.lax.fori_loop(0, horizon, step, (imagined, begun))[0]

    def step(
        self,
        hyper: Hyper,
        model: ModelState,
        params: Params,
        seen: Array,
        actions: Array,
        noise: Array,
    ) -> tuple[dict[str, Array], Array]:
        """Imagined transitions from N states, and which of them are sound."""
        dynamics = self.model.dynamics
        drawn = jax.random.normal(noise, (len(seen), dynamics.outputs))
        made = dynamics.next_step(jnp, params, self.model.scaling(model), seen, actions, drawn)
        following = made.observation.reshape(seen.shape).astype(seen.dtype)
        reward, over = made.reward, made.terminated
        told = (seen, self.known.own_action(actions), following)
        if self.known.reward is not None:
            reward = jnp.asarray(self.known.reward(jnp, *told), jnp.float32).reshape(len(seen))
        if self.known.terminated is not None:
            over = jnp.asarray(self.known.terminated(jnp, *told), bool).reshape(len(seen))
        rows = {
            "observation": seen,
            "action": actions,
            "reward": reward,
            "discount": jnp.where(over, 0, hyper["gamma"]).astype(jnp.float32),
            "next_observation": following,
        }
        return rows, made.sound & jnp.isfinite(reward)


def key_for(seed: Array, purpose: np.uint32) -> Array:
    """A random key that depends on nothing but these."""
    return jax.random.fold_in(jax.random.key(seed), purpose)


@dataclass(frozen=True)
class DreamSettings:
    """How much is learned and imagined with each block."""

    batch_size: int
    imagined_capacity: int
    real_ratio: float
    rollouts_per_step: int
    updates_due: Callable[[int, int], int]  # of the model: for a block's steps, of all made
    horizon: Callable[[int], int]  # of rollouts, after this number of environment steps


class Dreams:
    """Owns model, replay and imagined transitions on the learner's device.

    The model learns with every block, also before the policy's first update; how long that takes is
    bounded by the steps of the block. Where it predicts held-out steps worse than "nothing changes",
    the policy learns from real transitions alone until that has changed.
    """

    joins_blocks = False  # each block has rollouts of its own

    def __init__(
        self,
        engine: Engine,
        hyper: Hyper,
        imagination: Imagination,
        settings: DreamSettings,
        acting: Callable[[TrainState], Sequence[Array]],
        observer: CompileObserver,
        rng: np.random.Generator,
    ) -> None:
        self._engine, self._hyper, self._imagination = engine, hyper, imagination
        self._settings, self._acting = settings, acting
        seed = int(rng.integers(2**32))
        cfg = replace(engine.algorithm.config, replay_capacity=settings.imagined_capacity)  # type: ignore[call-arg]
        dreaming = Engine(replace(engine.algorithm, config=cfg))
        self._real, self._imagined = (
            DeviceReplay(each, hyper, acting, observer, (seed + number) % 2**32)
            for number, each in enumerate((engine, dreaming))
        )
        self._model = to_device(imagination.model.init(rng))
        self._seen = 0
        self._useful: Array | None = None  # of the last block, on its way from the device
        self._told = True
        jit, call = observer.jit, observer.call
        self._keep = call(jit(self._kept, donate=0, static=2))
        self._branch = call(jit(self._branched, donate=3, static=6))
        self._improve = call(jit(self._improved, donate=0, static=5))

    def ready(self, rows: Arrays | None) -> bool:
        return count_known(rows) > 0 or self._seen > 0

    def add(self, rows: Arrays | None) -> None:
        real, _ = self._take_in(rows)
        self._real.keep(real)

    def learn(
        self,
        state: TrainState,
        rows: Arrays | None,
        updates: int,
        made: int,
        *,
        joined: bool = False,
    ) -> tuple[TrainState, Metrics]:
        self._tell()
        real, told = self._take_in(rows)
        assert rows is not None
        horizon, seen = self._settings.horizon(self._seen), np.int32(self._seen)
        branching = (state, self._model, real, self._imagined.pop_store(rows))
        imagined, self._useful, found = self._branch(
            *branching, seen, np.int32(horizon), self._rollouts(count_known(rows))
        )
        state, metrics = self._improve(state, real, imagined, self._useful, np.int32(made), updates)
        self._real.keep(real)
        self._imagined.keep(imagined)
        return state, {**metrics, **told, **found, "model_horizon": float(horizon)}

    def _take_in(self, rows: Arrays | None) -> tuple[Store, Metrics]:
        """The replay with these rows, from which the model has then learned."""
        assert rows is not None  # one learner alone always has a block
        steps = count_known(rows)
        self._seen += steps
        updates, real = self._settings.updates_due(steps, self._seen), self._real.pop_store(rows)
        (self._model, real), told = self._keep((self._model, real), rows, updates)
        return real, told

    def _rollouts(self, steps: int) -> int:
        """Those that follow a block, as many for each elite."""
        elites = self._imagination.model.elites
        return max(1, round(steps * self._settings.rollouts_per_step / elites)) * elites

    def _tell(self) -> None:
        """Log whether the model was used with the last block, where that has changed."""
        if self._useful is None or bool(self._useful) == self._told:
            return
        self._told = not self._told
        if self._told:
            log.info("the model predicts better than persistence: the policy learns from it, too")
        else:
            log.warning(
                "the model predicts held-out steps worse than that nothing changes: it is not used"
                " until it is better (columns model_error, model_persistence, model_used)"
            )

    # -- compiled -------------------------------------------------------------------------------------

    def _kept(
        self, learnt: tuple[ModelState, Store], rows: Batch, updates: int
    ) -> tuple[tuple[ModelState, Store], Metrics]:
        """Model and replay after the rows of a block and the model's updates."""
        world, (model, real) = self._imagination.model, learnt
        real, model = added(real, rows), world.seen(model, rows)
        ring, key = real.ring, key_for(real.seed, LEARN)
        model, loss = world.trained(model, ring.rows, ring.size, key, updates)
        return (model, real), {"model_loss": loss} if updates else {}

    def _branched(
        self,
        state: TrainState,
        model: ModelState,
        real: Store,
        imagined: Store,
        seen: Array,
        horizon: Array,
        rollouts: int,
    ) -> tuple[Store, Array, Metrics]:
        """The imagined transitions after more rollouts, if the model is useful; whether they are to be
        used; and how good the model is."""
        imagination, ring = self._imagination, real.ring
        key = jax.random.fold_in(key_for(real.seed, TEST), seen)
        found = imagination.model.assess(model, ring.rows, ring.size, key)
        key = jax.random.fold_in(key_for(real.seed, BRANCH), seen)
        acting = acting_in_training(jnp, imagination.algorithm, self._hyper, state, seen)
        length = jnp.where(found.useful, horizon, 0)
        made = imagination.rollouts(
            self._hyper, acting, (model, found), ring, imagined.ring, key, length, rollouts
        )
        used = found.useful & (made.size > 0)
        told: Metrics = {
            "model_error": found.error,
            "model_persistence": found.persistence,
            "model_disagreement": found.disagreement,
            "model_used": used.astype(jnp.float32),
        }
        if imagination.known.reward is None:
            told["model_reward_error"] = found.reward_error
        return imagined._replace(ring=made), used, told

    def _improved(
        self,
        state: TrainState,
        real: Store,
        imagined: Store,
        used: Array,
        first: Array,
        updates: int,
    ) -> tuple[TrainState, Metrics]:
        """The policy after its updates, from real and imagined transitions."""
        draw, numbers = partial(self._mixed, real, imagined, used), first + jnp.arange(updates)
        state, metrics, _ = self._engine.run_updates(self._hyper, state, numbers, draw)
        return state, with_weights(summarised(metrics), self._acting, state)

    def _mixed(
        self, real: Store, imagined: Store, used: Array, number: Array
    ) -> tuple[dict[str, Array], None]:
        """The batch of one update: ``real_ratio`` of it real, all of it where the model is not used."""
        size = self._settings.batch_size
        beta, draws = jnp.float32(1), self._engine.algorithm.draws
        mine, _ = batch(draws, size, real, None, beta, number)
        dreamt, _ = batch(lambda *_: {}, size, imagined, None, beta, number)
        share = max(1, round(size * self._settings.real_ratio))
        other = (jnp.arange(size) >= share) & used
        mixed = {
            name: jnp.where(other.reshape(-1, *[1] * (mine[name].ndim - 1)), array, mine[name])
            for name, array in dreamt.items()
        }
        return {**mine, **mixed}, None

    # -- keeping --------------------------------------------------------------------------------------

    def state(self) -> Arrays:
        imagined = {f"imagined/{n}": a for n, a in self._imagined.state().items()}
        model = to_arrays(self._model, "model")
        return {"seen": np.array(self._seen), **self._real.state(), **imagined, **model}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over what ``state`` gave; ValueError if model or capacities were others."""

        def of(part: str) -> Arrays:
            return {n: a for n, a in arrays.items() if n.startswith(f"{part}/")}

        self._seen, self._useful, self._told = int(arrays["seen"]), None, True
        self._model = from_arrays(self._model, of("model"), "model")
        rest = {n: a for n, a in arrays.items() if n not in {**of("model"), **of("imagined")}}
        self._real.restore(rest)
        self._imagined.restore({n.partition("/")[2]: a for n, a in of("imagined").items()})
