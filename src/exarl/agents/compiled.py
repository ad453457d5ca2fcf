"""The one module that imports JAX: compiles an agent's pure functions into its learning half."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from exarl.types import Arrays

SINGLE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def _import_jax() -> tuple[Any, Any]:
    # Small networks are faster on one XLA thread, and ranks that share a node must not fight for
    # its cores; whoever has a large network on a CPU sets XLA_FLAGS.
    if "jax" not in sys.modules and "XLA_FLAGS" not in os.environ:
        os.environ["XLA_FLAGS"] = SINGLE_THREAD
    import jax
    import optax

    return jax, optax


jax, optax = _import_jax()
jnp = jax.numpy

OPTIMIZERS = ("adam", "adamw", "rmsprop", "sgd", "nadam", "radam", "lion", "adabelief")

Step = Callable[[Any, Any], tuple[Any, Any]]


def optimizer(name: str, learning_rate: float, max_grad_norm: float | None) -> Any:
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


def descend(loss: Callable[..., Any], optimiser: Any) -> Callable[..., Any]:
    """One gradient step on ``loss(params, *data) -> (value, metrics)``."""

    def step(params: Any, opt_state: Any, *data: Any) -> tuple[Any, Any, Any]:
        (_, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(params, *data)
        updates, opt_state = optimiser.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, metrics

    return step


def scanned(step: Step) -> Step:
    """``step(state, batch) -> (state, metrics)`` over a stack of batches in one compiled call.

    The state's buffers are donated; the metrics come back as their means.
    """

    def run(state: Any, batches: Any) -> tuple[Any, Any]:
        state, metrics = jax.lax.scan(step, state, batches)
        return state, jax.tree.map(jnp.mean, metrics)

    compiled: Step = jax.jit(run, donate_argnums=0)
    return compiled


def to_device(tree: Any) -> Any:
    """Arrays as device arrays of their own (donation must not free NumPy's memory)."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), tree)


def to_arrays(tree: Any, prefix: str) -> Arrays:
    """The leaves of any tree as named arrays, ``prefix/0``, ``prefix/1``, ..."""
    return {f"{prefix}/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def from_arrays(like: Any, arrays: Mapping[str, np.ndarray], prefix: str) -> Any:
    """The inverse of ``to_arrays``, with the structure of ``like``; ValueError on a mismatch."""
    leaves, structure = jax.tree.flatten(like)
    stored = [arrays[f"{prefix}/{i}"] for i in range(len(leaves))]
    for leaf, array in zip(leaves, stored, strict=True):
        if leaf.shape != array.shape:
            raise ValueError(f"stored {prefix} has shape {array.shape}, expected {leaf.shape}")
    return to_device(jax.tree.unflatten(structure, stored))
