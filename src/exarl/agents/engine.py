"""Runs an algorithm: differentiates its losses, applies its optimisers, scans over updates.

The same functions make the updates of a learner alone, of several learners that average, of a learner
whose replay lives on its device, and those inside the fused program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exarl.agents.algorithm import Algorithm, AlgorithmConfig, Hyper, Loss, TrainState
from exarl.agents.compiled import cond, counted, jax, jnp, optax, optimizer, scan
from exarl.agents.constraints import priced_batch
from exarl.agents.device_replay import Store, batch, rated, sums_of
from exarl.agents.normalizers import normalized_batch
from exarl.agents.offpolicy import OffPolicyConfig
from exarl.agents.optimizers import done_of_run, end_of, fallen
from exarl.agents.running import moments, trained
from exarl.types import Array, Batch, Metrics, Params

WEIGHTS = "weights"
"""The metric that carries the acting parameters as one vector."""


class Grads(NamedTuple):
    """What an update does to the parameters; averaged over a team."""

    params: Params
    halt: Array | None  # the metric that may end the updates of a block
    moments: Params  # how far running moments of networks go


@dataclass(frozen=True)
class Engine:
    """The updates of one algorithm, as pure functions to be compiled."""

    algorithm: Algorithm[AlgorithmConfig]

    def init(self, hyper: Hyper, params: Params, norm: Batch) -> TrainState:
        """The state that training begins with."""
        state = TrainState(
            params=params,
            target=self.algorithm.target(params),
            optimizer={},
            updates=np.int32(0),  # type: ignore[arg-type]  # a scalar of NumPy will do
            norm=dict(norm),
            halted=None if self.algorithm.halt(hyper) is None else np.bool_(False),  # type: ignore[arg-type]
        )
        optimizers = self._optimizers(hyper, state)
        own = {name: o.init(self._moved_by(name, params)) for name, o in optimizers.items()}
        return state._replace(optimizer=own)

    def _as_learned(self, hyper: Hyper, state: TrainState, batch: Batch) -> Batch:
        """A batch, normalised, with rewards that mind the constraints."""
        return priced_batch(jnp, state.norm, normalized_batch(jnp, hyper, state.norm, batch))

    # -- one update ---------------------------------------------------------------------------------

    def grads(self, hyper: Hyper, state: TrainState, batch: Batch) -> tuple[Grads, Metrics]:
        """The gradient of every loss for its own parameters, and the metrics."""
        if self.algorithm.uses_replay:
            batch = self._as_learned(hyper, state, batch)
        if (halt := self.algorithm.halt(hyper)) is None:
            return self._all_grads(hyper, state, batch)

        def learn() -> tuple[Grads, Metrics]:
            grads, metrics = self._all_grads(hyper, state, batch)
            return grads._replace(halt=jnp.asarray(metrics[halt.metric])), metrics

        def skip() -> tuple[Grads, Metrics]:
            nothing = jax.tree.map(jnp.zeros_like, self.like_grads(hyper, state))
            return nothing, _no_metrics(self.algorithm.losses)

        assert state.halted is not None
        return cond(state.halted, skip, learn)

    def apply(self, hyper: Hyper, state: TrainState, grads: Grads) -> TrainState:
        """The state after one update."""
        halt = self.algorithm.halt(hyper)
        if halt is None or grads.halt is None or state.halted is None:
            return self._moved(hyper, state, grads)
        halted = state.halted | (grads.halt > halt.limit)

        def stay() -> TrainState:  # counts go on, the same at every learner of a team
            return state._replace(**counted({k: getattr(state, k) for k in COUNTING}, 1))

        moved = cond(halted, stay, lambda: self._moved(hyper, state, grads))
        return moved._replace(halted=halted)

    def like_grads(self, hyper: Hyper, state: TrainState) -> Grads:
        """Arrays of the form that ``grads`` gives."""
        names = tuple(name for loss in self.algorithm.losses for name in loss.trains)
        halt = None if self.algorithm.halt(hyper) is None else jnp.float32(0)
        return Grads(trained(state.params, names), halt, moments(state.params, names))

    def _all_grads(self, hyper: Hyper, state: TrainState, batch: Batch) -> tuple[Grads, Metrics]:
        grads: dict[str, Array] = {}
        steps: dict[str, Array] = {}
        metrics: Metrics = {}
        for loss in self.algorithm.losses:
            own, found = self._due_grads(loss, hyper, state, batch)
            grads, steps, metrics = (
                {**grads, **own.params},
                {**steps, **own.moments},
                metrics | found,
            )
        return Grads(grads, None, steps), metrics

    def _due_grads(
        self, loss: Loss, hyper: Hyper, state: TrainState, batch: Batch
    ) -> tuple[Grads, Metrics]:
        """The gradient of one loss; zeros at updates that skip it."""
        own, kept = trained(state.params, loss.trains), moments(state.params, loss.trains)

        def value(own: Params) -> tuple[Array, Metrics]:
            return loss.value(jnp, hyper, {**state.params, **own}, state, batch)

        def learn() -> tuple[Grads, Metrics]:
            (_, metrics), grads = jax.value_and_grad(value, has_aux=True)(own)
            steps = {n: jnp.asarray(metrics.pop(n)) - before for n, before in kept.items()}
            return Grads(grads, None, steps), metrics

        def skip() -> tuple[Grads, Metrics]:
            nothing: Grads = jax.tree.map(jnp.zeros_like, Grads(own, None, kept))
            return nothing, _no_metrics([loss])

        if loss.every == 1:
            return learn()
        return cond(state.updates % loss.every == 0, learn, skip)

    def _moved(self, hyper: Hyper, state: TrainState, found: Grads) -> TrainState:
        """All optimisers' steps, and what the algorithm does after them."""
        grads, steps = found.params, found.moments
        delays = {loss.optimizer: loss.every for loss in self.algorithm.losses}
        delay = max(delays.values())
        optimizers, number = self._optimizers(hyper, state), state.updates
        followed = {**state.params, **{n: state.params[n] + step for n, step in steps.items()}}
        state = state._replace(params=followed, updates=state.updates + 1)
        for name, every in delays.items():
            if every == 1:
                state = self._descend(name, optimizers[name], state, grads)
        if delay == 1:
            return self.algorithm.after_update(hyper, state, complete=True)

        def move() -> TrainState:
            moved = state
            for name, every in delays.items():
                if every > 1:
                    moved = self._descend(name, optimizers[name], moved, grads)
            return self.algorithm.after_update(hyper, moved, complete=True)

        def stay() -> TrainState:
            return self.algorithm.after_update(hyper, state, complete=False)

        return cond(number % delay == 0, move, stay)

    def _descend(
        self, name: str, optimizer: optax.GradientTransformation, state: TrainState, grads: Params
    ) -> TrainState:
        own = self._moved_by(name, state.params)
        steps, opt = optimizer.update(self._moved_by(name, grads), state.optimizer[name], own)
        moved: Params = optax.apply_updates(own, steps)  # type: ignore[assignment]
        params = {**state.params, **moved}
        return state._replace(params=params, optimizer={**state.optimizer, name: opt})

    def _moved_by(self, optimizer: str, params: Params) -> dict[str, Array]:
        losses = [loss for loss in self.algorithm.losses if loss.optimizer == optimizer]
        return trained(params, tuple(name for loss in losses for name in loss.trains))

    def _optimizers(
        self, hyper: Hyper, state: TrainState
    ) -> dict[str, optax.GradientTransformation]:
        """The optimisers of the next update."""
        cfg, limit = self.algorithm.config, hyper.get("max_grad_norm")
        eps, decay = hyper.get("adam_eps"), hyper.get("weight_decay")
        return {
            loss.optimizer: optimizer(
                cfg.optimizer,
                self.step_size(hyper, state, loss),
                limit,
                adam_eps=eps,
                betas=cfg.betas,
                weight_decay=decay,
            )
            for loss in self.algorithm.losses
        }

    def step_size(self, hyper: Hyper, state: TrainState, loss: Loss) -> float | Array:
        """That of a loss at the next update. Schedules go by all updates or by environment steps, and
        not by the steps of an optimiser, so that a policy that moves less often does not lag."""
        first = hyper.get(loss.learning_rate, hyper["learning_rate"])
        end, limit = hyper.get("learning_rate_end"), self.algorithm.config.learning_rate_updates
        if state.progress is not None:
            done = done_of_run(jnp, hyper["learning_rate_fraction"], state.progress)
        elif limit:
            done = jnp.clip(state.updates, 0, limit) / limit
        else:
            return first
        return fallen(first, end_of(first, end), done)

    # -- many updates -------------------------------------------------------------------------------

    def run_updates(
        self,
        hyper: Hyper,
        state: TrainState,
        numbers: Array,
        draw: Callable[[Array], tuple[Batch, Array | None]],
    ) -> tuple[TrainState, Metrics, Array | None]:
        """The updates with these numbers, each from the batch that ``draw`` gives for its number.

        The third result stacks what ``draw`` gives beside the batch; metrics are stacked too.
        """

        def step(
            state: TrainState, number: Array
        ) -> tuple[TrainState, tuple[Metrics, Array | None]]:
            minibatch, places = draw(number)
            grads, metrics = self.grads(hyper, state, minibatch)
            return self.apply(hyper, state, grads), (metrics, places)

        state, (metrics, places) = scan(step, state, numbers)
        return state, metrics, places

    def prepare(self, hyper: Hyper, state: TrainState, inputs: Batch) -> Batch:
        """The data of all updates of a block."""
        if not self.algorithm.uses_replay:
            inputs = self._as_learned(hyper, state, inputs)
        return self.algorithm.prepare(jnp, hyper, state, inputs)

    def run_prepared(
        self, hyper: Hyper, state: TrainState, data: Batch, numbers: Array
    ) -> tuple[TrainState, Metrics]:
        """The updates with these numbers, from data that is prepared."""
        state, metrics, _ = self.run_updates(
            hyper, state, numbers, lambda i: (self.algorithm.minibatch(data, i), None)
        )
        return state, summarised(metrics)

    def run_block(
        self, hyper: Hyper, state: TrainState, inputs: Batch, updates: int
    ) -> tuple[TrainState, Metrics]:
        """All updates of a block, from its inputs or from batches that a replay on the host drew."""
        data = self.prepare(hyper, state, inputs)
        state, metrics = self.run_prepared(hyper, state, data, jnp.arange(updates))
        return resumed(state), metrics

    def run_padded(
        self, hyper: Hyper, state: TrainState, inputs: Batch, updates: Array
    ) -> tuple[TrainState, Metrics]:
        """``run_block`` for the first ``updates`` of the batches in ``inputs``, so that one compiled
        program serves several numbers of updates. Metrics that stay stacked are NaN beyond them."""
        data = self.prepare(hyper, state, inputs)

        def step(state: TrainState, number: Array) -> tuple[TrainState, Metrics]:
            grads, metrics = self.grads(hyper, state, self.algorithm.minibatch(data, number))
            return self.apply(hyper, state, grads), metrics

        room = len(next(iter(inputs.values())))
        like = jax.eval_shape(step, state, jnp.int32(0))[1]
        unused = {n: jnp.full((room, *a.shape), np.nan, a.dtype) for n, a in like.items()}

        def at(number: Array, so_far: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, made = so_far
            state, metrics = step(state, number)
            return state, {n: jnp.asarray(a).at[number].set(metrics[n]) for n, a in made.items()}

        state, metrics = jax.lax.fori_loop(0, updates, at, (state, unused))
        return resumed(state), summarised(metrics)

    def run_from_store(
        self,
        hyper: Hyper,
        state: TrainState,
        store: Store,
        size: int,
        first: Array,
        beta: Array,
        updates: int,
        share: int = 0,
    ) -> tuple[TrainState, Store, Metrics]:
        """All updates of a block, from batches of ``size`` that are drawn on the device, of which
        ``share`` rows are prior data.

        Priorities are those at the block's beginning for all its updates, and are set after the last.
        """
        config = self.algorithm.config
        assert isinstance(config, OffPolicyConfig)
        sums = sums_of(store)
        state, metrics, places = self.run_updates(
            hyper,
            state,
            first + jnp.arange(updates),
            lambda number: batch(self.algorithm.draws, size, store, sums, beta, number, share),
        )
        priority = metrics.pop("priority", None)
        if places is not None and priority is not None:
            priorities = jnp.ravel(jnp.asarray(priority)[:, share:])
            store = rated(store, places.ravel(), priorities, config.priority_scale)
        return state, store, summarised(metrics)


COUNTING = ("optimizer", "updates")
"""The parts of a state that hold counts of updates."""


def resumed(state: TrainState) -> TrainState:
    """The state after a block: the next one begins without a halt."""
    if state.halted is None:
        return state
    return state._replace(halted=jnp.zeros_like(state.halted))


def summarised(metrics: Metrics) -> Metrics:
    """Means of metrics that are one number per update; others stay stacked."""
    # NaN stands for an update that had nothing to report, such as one without the delayed policy.
    return {
        name: jnp.nanmean(array) if np.ndim(array) == 1 else array
        for name, array in metrics.items()
    }


def _no_metrics(losses: Sequence[Loss]) -> Metrics:
    return {name: jnp.float32(np.nan) for loss in losses for name in loss.metrics}


def with_weights(
    metrics: Metrics, acting: Callable[[TrainState], Sequence[Array]], state: TrainState
) -> Metrics:
    """The metrics, and beside them the acting parameters of the state as one vector."""
    return {**metrics, WEIGHTS: jnp.concatenate([a.ravel() for a in acting(state)])}
