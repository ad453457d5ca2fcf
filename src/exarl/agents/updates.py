"""The updates of a block as compiled calls: of one learner alone, or averaged over a team."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from exarl.agents.algorithm import Hyper, TrainState
from exarl.agents.base import Team
from exarl.agents.compiled import CompileObserver, counted, jax, jnp
from exarl.agents.engine import Engine, Grads, resumed, summarised, with_weights
from exarl.errors import ConfigError
from exarl.types import Array, Batch, Metrics, PyTree

Update = Callable[[TrainState, Batch | None, int], tuple[TrainState, Metrics]]
"""The updates of a block: ``(state, inputs, updates)``; a learner of a team may have no inputs."""


def compile_updates(
    engine: Engine,
    hyper: Hyper,
    team: Team | None,
    acting: Callable[[TrainState], Sequence[Array]],
    observer: CompileObserver,
    weight: float = 1.0,
) -> Update:
    """The updates of a block as one compiled call; the state's buffers are donated.

    One learner alone also gives, among the metrics, what ``acting`` selects of the new state as one
    vector, ``WEIGHTS``: a single copy then brings the weights from the device. A team of several
    averages instead, in which this learner's data have ``weight``; without data (``inputs`` None) it
    takes part with weight 0.
    """
    if team is not None and team.size > 1:
        average = averaged_states if team.every > 1 else averaged_grads
        return observer.call(average(engine, hyper, team, observer, weight))

    def run(state: TrainState, inputs: Batch, updates: int) -> tuple[TrainState, Metrics]:
        state, metrics = engine.run_block(hyper, state, inputs, updates)
        return state, with_weights(metrics, acting, state)

    return observer.call(observer.jit(run, donate=0, static=2))


def compile_padded(
    engine: Engine,
    hyper: Hyper,
    acting: Callable[[TrainState], Sequence[Array]],
    observer: CompileObserver,
) -> Update:
    """Like ``compile_updates`` for one learner alone, of the first ``updates`` of the batches given:
    it is compiled for a number of batches, and serves any number of updates up to that."""

    def run(state: TrainState, inputs: Batch, updates: Array) -> tuple[TrainState, Metrics]:
        state, metrics = engine.run_padded(hyper, state, inputs, updates)
        return state, with_weights(metrics, acting, state)

    return observer.call(observer.jit(run, donate=0))


def on_devices(update: Update, devices: int) -> Update:
    """``update`` with each batch divided among the first ``devices`` of this process; XLA adds the
    parts of the gradients up. ConfigError if there are fewer."""
    available = jax.local_devices()
    if devices > len(available):
        raise ConfigError(f"learner_devices={devices}, but JAX sees {len(available)}")
    mesh = jax.sharding.Mesh(np.array(available[:devices]), ("rows",))
    rows, whole = (
        jax.NamedSharding(mesh, jax.P(*axes))  # type: ignore[no-untyped-call]
        for axes in ((None, "rows"), ())
    )

    def run(state: TrainState, inputs: Batch | None, updates: int) -> tuple[TrainState, Metrics]:
        if inputs is not None:  # [updates, batch, ...]
            inputs = jax.device_put(inputs, rows)
        state, metrics = update(jax.device_put(state, whole), inputs, updates)
        return state, metrics

    return run


def averaged_grads(
    engine: Engine, hyper: Hyper, team: Team, observer: CompileObserver, weight: float
) -> Update:
    """The gradients of every update averaged."""
    ravel = jax.flatten_util.ravel_pytree

    def flat_grads(state: TrainState, data: Batch, i: int) -> tuple[Array, Metrics]:
        found, metrics = engine.grads(hyper, state, engine.algorithm.minibatch(data, i))
        return ravel(found)[0], metrics

    def unravel(state: TrainState) -> Callable[[jax.Array], Grads]:
        return ravel(engine.like_grads(hyper, state))[1]

    def flat_apply(state: TrainState, vector: Array) -> TrainState:
        return engine.apply(hyper, state, unravel(state)(jnp.asarray(vector)))

    compute, apply = observer.jit(flat_grads), observer.jit(flat_apply, donate=0)
    prepare = observer.jit(lambda state, inputs: engine.prepare(hyper, state, inputs))

    def run(state: TrainState, inputs: Batch | None, updates: int) -> tuple[TrainState, Metrics]:
        if inputs is None:
            like = jax.tree.leaves(engine.like_grads(hyper, state))
            nothing = np.zeros(sum(np.size(leaf) for leaf in like), "f4")
            for _ in range(updates):
                state = apply(state, team.average(nothing, 0.0))
            return resumed(state), {}
        made: list[Metrics] = []
        data = prepare(state, inputs)
        for update in range(updates):
            vector, metrics = compute(state, data, update)
            made.append(metrics)
            state = apply(state, team.average(np.asarray(vector), weight))
        stacked: Metrics = {name: np.stack([np.asarray(m[name]) for m in made]) for name in made[0]}
        return resumed(state), summarised(stacked)

    return run


def averaged_states(
    engine: Engine, hyper: Hyper, team: Team, observer: CompileObserver, weight: float
) -> Update:
    """Updates made alone, and the states averaged after every ``team.every`` of them."""
    ravel = jax.flatten_util.ravel_pytree

    def run_alone(state: TrainState, data: Batch, numbers: Array) -> tuple[TrainState, Metrics]:
        return engine.run_prepared(hyper, state, data, numbers)

    alone = observer.jit(run_alone, donate=0)
    prepare = observer.jit(lambda state, inputs: engine.prepare(hyper, state, inputs))

    def run(state: TrainState, inputs: Batch | None, updates: int) -> tuple[TrainState, Metrics]:
        made: list[Metrics] = []
        data = None if inputs is None else prepare(state, inputs)
        for start in range(0, updates, team.every):
            numbers = jnp.arange(start, min(start + team.every, updates))
            if data is None:
                state = counted(state, len(numbers))
            else:
                state, metrics = alone(state, data, numbers)
                made.append(metrics)
            floats, restore = ravel(_floats(state))
            mean = team.average(np.asarray(floats), 0.0 if data is None else weight)
            state = _with_floats(state, restore(jnp.asarray(mean)))
        return resumed(state), joined(made) if made else {}

    return run


def joined(made: Sequence[Metrics]) -> Metrics:
    """Of several stretches of updates: means of the means, the stacked ones end to end."""
    return {
        name: jnp.nanmean(jnp.stack([m[name] for m in made]))
        if np.ndim(made[0][name]) == 0
        else np.concatenate([np.asarray(m[name]) for m in made])
        for name in made[0]
    }


def _floats(tree: PyTree) -> list[Array]:
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]


def _with_floats(tree: PyTree, floats: Sequence[Array]) -> PyTree:
    fresh = iter(floats)
    return jax.tree.map(
        lambda leaf: next(fresh) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree
    )
