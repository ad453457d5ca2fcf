"""The one module that imports JAX: compiles an agent's pure functions into its learning half."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from exarl.agents.base import Team
from exarl.types import Arrays

SINGLE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def _import_jax() -> tuple[Any, Any]:
    # Small networks are faster on one XLA thread, and ranks that share a node must not fight for
    # its cores; whoever has a large network on a CPU sets XLA_FLAGS.
    if "jax" not in sys.modules and "XLA_FLAGS" not in os.environ:
        os.environ["XLA_FLAGS"] = SINGLE_THREAD
    import jax
    import jax.flatten_util
    import optax

    return jax, optax


jax, optax = _import_jax()
jnp = jax.numpy

OPTIMIZERS = ("adam", "adamw", "rmsprop", "sgd", "nadam", "radam", "lion", "adabelief")

Step = Callable[[Any, Any], tuple[Any, Any]]
Gradient = Callable[[Any, Any], tuple[Any, Any]]
Apply = Callable[[Any, Any], Any]
Update = Callable[[Any, Any, int], tuple[Any, Any]]


def linear(start: float, end: float, updates: int) -> Any:
    """A step size that falls from ``start`` to ``end`` over so many updates; 0: constant."""
    return optax.linear_schedule(start, end, updates) if updates else start


def optimizer(name: str, learning_rate: Any, max_grad_norm: float | None) -> Any:
    """An optax optimiser by name, with the global norm of the gradient clipped where asked."""
    chosen = getattr(optax, name)(learning_rate)
    if max_grad_norm is None:
        return chosen
    return optax.chain(clip_by_global_norm(max_grad_norm), chosen)


def clip_by_global_norm(limit: float) -> Any:
    """Scale a gradient down to norm ``limit``. The norm is taken by dot products, which XLA hands to
    the matrix library; optax's sum of squares costs a fifth of a small network's update on a CPU."""

    def update(gradient: Any, state: Any, _: Any = None) -> tuple[Any, Any]:
        squares = sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gradient))
        scale = jnp.minimum(1.0, limit / jnp.maximum(jnp.sqrt(squares), 1e-12))
        return jax.tree.map(lambda leaf: leaf * scale, gradient), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


def descend(optimiser: Any, gradient: Any, opt_state: Any, params: Any) -> tuple[Any, Any]:
    """One step of the optimiser: new parameters and its new state."""
    updates, opt_state = optimiser.update(gradient, opt_state, params)
    return optax.apply_updates(params, updates), opt_state


def gradient_of(loss: Callable[[Any], tuple[Any, Any]], params: Any) -> tuple[Any, Any]:
    """The gradient of ``loss(params) -> (value, metrics)``, and the metrics."""
    (_, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    return gradient, metrics


def scanned(step: Step) -> Step:
    """``step(state, batch) -> (state, metrics)`` over a stack of batches in one compiled call.

    The state's buffers are donated; the metrics come back as their means.
    """

    def run(state: Any, batches: Any) -> tuple[Any, Any]:
        state, metrics = jax.lax.scan(step, state, batches)
        return state, jax.tree.map(jnp.mean, metrics)

    compiled: Step = jax.jit(run, donate_argnums=0)
    return compiled


def learner(gradient: Gradient, apply: Apply, team: Team | None) -> Update:
    """The updates of a block: ``gradient(state, batch) -> (gradient, metrics)``, ``apply(state,
    gradient) -> state``, all in one compiled call.

    With a team of several learners the gradient of each update is averaged over it instead or, when
    ``team.every`` is k > 1, every k updates are made alone and then the states averaged. A learner
    without data takes part with weight 0 (``batches`` None).
    """

    def step(state: Any, batch: Any) -> tuple[Any, Any]:
        slope, metrics = gradient(state, batch)
        return apply(state, slope), metrics

    alone = scanned(step)
    if team is None or team.size == 1:
        return lambda state, batches, updates: alone(state, batches)
    if team.every > 1:
        return _averaging_states(alone, team)
    return _averaging_gradients(gradient, apply, team)


def _averaging_gradients(gradient: Gradient, apply: Apply, team: Team) -> Update:
    ravel = jax.flatten_util.ravel_pytree

    @partial(jax.jit)
    def flat_gradient(state: Any, batch: Any) -> tuple[Any, Any]:
        slope, metrics = gradient(state, batch)
        return ravel(slope)[0], metrics

    @partial(jax.jit, donate_argnums=0)
    def flat_apply(state: Any, vector: Any) -> Any:
        return apply(state, ravel(state["params"])[1](vector))

    def run(state: Any, batches: Any, updates: int) -> tuple[Any, Any]:
        sums: list[Any] = []
        vector = np.zeros(sum(leaf.size for leaf in jax.tree.leaves(state["params"])), np.float32)
        for update in range(updates):
            if batches is not None:
                batch = {name: array[update] for name, array in batches.items()}
                slope, metrics = flat_gradient(state, batch)
                vector = np.asarray(slope)
                sums.append(metrics)
            mean = team.average(vector, 0.0 if batches is None else 1.0)
            state = flat_apply(state, mean)
        means = jax.tree.map(lambda *values: float(np.mean(values)), *sums) if sums else {}
        return state, means

    return run


def _averaging_states(alone: Step, team: Team) -> Update:
    ravel = jax.flatten_util.ravel_pytree

    def run(state: Any, batches: Any, updates: int) -> tuple[Any, Any]:
        sums: list[Any] = []
        for start in range(0, updates, team.every):
            made = min(team.every, updates - start)
            if batches is None:
                state = _counted(state, made)
            else:
                part = {n: a[start : start + made] for n, a in batches.items()}
                state, metrics = alone(state, part)
                sums.append(metrics)
            floats, restore = ravel(_floats(state))
            mean = team.average(np.asarray(floats), 0.0 if batches is None else 1.0)
            state = _with_floats(state, restore(jnp.asarray(mean)))
        means = jax.tree.map(lambda *values: float(np.mean(values)), *sums) if sums else {}
        return state, means

    return run


def _counted(tree: Any, updates: int) -> Any:
    """The state of a learner that watched ``updates``: its integers are counts of updates, which
    schedules, bias corrections and target copies go by, and must not fall behind."""
    return jax.tree.map(
        lambda leaf: leaf + updates if jnp.issubdtype(leaf.dtype, jnp.integer) else leaf, tree
    )


def _floats(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]


def _with_floats(tree: Any, floats: list[Any]) -> Any:
    fresh = iter(floats)
    return jax.tree.map(
        lambda leaf: next(fresh) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree
    )


def to_device(tree: Any) -> Any:
    """Arrays as device arrays of their own (donation must not free NumPy's memory)."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), tree)


def to_arrays(tree: Any, prefix: str) -> Arrays:
    """The leaves of any tree as named arrays, ``prefix/0``, ``prefix/1``, ..."""
    return {f"{prefix}/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def from_arrays(like: Any, arrays: Mapping[str, np.ndarray], prefix: str) -> Any:
    """The inverse of ``to_arrays``, with the structure of ``like``; ValueError on a mismatch."""
    leaves, structure = jax.tree.flatten(like)
    names = [f"{prefix}/{i}" for i in range(len(leaves))]
    if sorted(names) != sorted(name for name in arrays if name.startswith(f"{prefix}/")):
        raise ValueError(f"stored {prefix} does not have the expected {len(leaves)} arrays")
    stored = [arrays[name] for name in names]
    for leaf, array in zip(leaves, stored, strict=True):
        if leaf.shape != array.shape:
            raise ValueError(f"stored {prefix} has shape {array.shape}, expected {leaf.shape}")
    return to_device(jax.tree.unflatten(structure, stored))
