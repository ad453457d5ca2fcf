"""The one module that imports JAX: compiles an agent's pure functions into its learning half."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from exarl.agents.base import Team
from exarl.agents.cache import keep_compiled
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

    keep_compiled(jax.config)
    return jax, optax


jax, optax = _import_jax()
jnp = jax.numpy

OPTIMIZERS = ("adam", "adamw", "rmsprop", "sgd", "nadam", "radam", "lion", "adabelief")

Update = Callable[[Any, Any, int], tuple[Any, Any]]
Shown = Callable[[Any], Sequence[Any]]
WEIGHTS = "weights"


@dataclass(frozen=True)
class Plan:
    """The pure functions that an agent's updates are made of.

    ``prepare(state, inputs) -> data`` is called once a block, ``pick(data, i) -> batch`` and
    ``gradient(state, batch) -> (slope, metrics)`` and ``apply(state, slope) -> state`` at each update.
    Metrics that are scalars come back as means over the updates, others stacked.
    """

    gradient: Callable[[Any, Any], tuple[Any, Any]]
    apply: Callable[[Any, Any], Any]
    prepare: Callable[[Any, Any], Any] = lambda state, inputs: inputs
    pick: Callable[[Any, Any], Any] = lambda data, i: {n: a[i] for n, a in data.items()}
    slope: Callable[[Any], Any] = lambda state: state["params"]
    """Anything of the form that ``gradient`` gives."""


def linear(start: float, end: float, updates: int) -> Any:
    """A step size that falls from ``start`` to ``end`` over so many updates; 0: constant."""
    return optax.linear_schedule(start, end, updates) if updates else start


def optimizer(name: str, learning_rate: Any, max_grad_norm: float | None) -> Any:
    """An optax optimiser by name, with the global norm of the gradient clipped where asked.

    Weight decay, where the optimiser has it, is for matrices: biases, deviations and temperatures are
    not to be drawn to 0.
    """
    decays = name in ("adamw", "lion")
    options = {"mask": lambda params: jax.tree.map(lambda a: a.ndim > 1, params)} if decays else {}
    chosen = getattr(optax, name)(learning_rate, **options)
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


def constant(value: Any) -> Any:
    """A value that no gradient flows through."""
    return jax.lax.stop_gradient(value)


def orders(key: Any, epochs: int, count: int) -> Any:
    """A random order of ``count`` rows for each epoch, [epochs, count]."""
    keys = jax.random.split(key, epochs)
    return jax.vmap(lambda k: jax.random.permutation(k, count))(keys)


class Normals:
    """A key in the form of a NumPy generator, for one call."""

    def __init__(self, key: Any) -> None:
        self._key = key

    def standard_normal(self, shape: tuple[int, ...], dtype: Any) -> Any:
        self._key, key = jax.random.split(self._key)
        return jax.random.normal(key, shape, dtype)


def zeros_like(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)


def chosen(condition: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """One of two results, of which only the one asked for is computed."""
    return jax.lax.cond(condition, lambda _: yes(), lambda _: no(), None)


def unrolled(network: Any, params: Any, observations: Any, memory: Any, resets: Any) -> Any:
    """A recurrent network over [T, N, ...]: outputs [T, N, ...], and the memory after each step.

    ``resets`` [T, N] says where a new episode begins, and the memory with it.
    """

    def step(memory: Any, now: Any) -> tuple[Any, Any]:
        seen, reset = now
        kept = {
            name: jnp.where(reset.reshape(-1, *[1] * (array.ndim - 1)), 0, array)
            for name, array in memory.items()
        }
        outputs, after = network.step(jnp, params, seen, kept)
        return after, (outputs, after)

    return jax.lax.scan(step, memory, (observations, resets))[1]


class Noticed:
    """Functions to be compiled, and one that calls them.

    JAX runs the Python of a function only to compile it anew. So ``compiling`` is entered when that
    happens within a call, the first or any other, and left at the call's end.
    """

    def __init__(self, compiling: Callable[[], AbstractContextManager[Any]]) -> None:
        self._compiling = compiling
        self._compiles = False
        self._until_returned = ExitStack()

    def jit(self, function: Callable[..., Any], **options: Any) -> Any:
        """``jax.jit`` of a function."""

        def update(*args: Any) -> Any:
            if not self._compiles:
                self._compiles = True
                self._until_returned.enter_context(self._compiling())
            return function(*args)

        return jax.jit(update, **options)

    def call(self, function: Callable[..., Any]) -> Any:
        """The function through which all the compiled ones are called."""

        def called(*args: Any) -> Any:
            with self._until_returned:
                self._compiles = False
                return function(*args)

        return called


def learner(
    plan: Plan,
    team: Team | None,
    shown: Shown | None = None,
    compiling: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Update:
    """The updates of a block, ``update(state, inputs, updates) -> (state, metrics)``, in one
    compiled call; the state's buffers are donated.

    One learner alone also gives, among the metrics, what ``shown`` picks of the new state as one
    vector, ``WEIGHTS``: a single copy then brings the weights from the device.

    With a team of several learners the slope of each update is averaged over it instead or, when
    ``team.every`` is k > 1, every k updates are made alone and then the states averaged. A learner
    without data takes part with weight 0 (``inputs`` None). ``compiling`` is entered while a call
    compiles.
    """
    from exarl.agents import averaging

    noticed = Noticed(compiling)
    if team is None or team.size == 1:
        run = noticed.jit(partial(scanned, plan, shown=shown), donate_argnums=0, static_argnums=2)
    elif team.every > 1:
        run = averaging.states(plan, team, noticed.jit)
    else:
        run = averaging.slopes(plan, team, noticed.jit)
    return cast(Update, noticed.call(run))


def scanned(
    plan: Plan, state: Any, inputs: Any, updates: int, shown: Shown | None = None
) -> tuple[Any, Any]:
    """The updates of a block, as a pure function."""
    data = plan.prepare(state, inputs)
    state, metrics = updates_of(plan, state, data, jnp.arange(updates))
    return state, with_weights(metrics, shown, state)


def with_weights(metrics: Any, shown: Shown | None, state: Any) -> Any:
    """The metrics, and beside them what is shown of the state as one vector."""
    if shown is None:
        return metrics
    return {**metrics, WEIGHTS: jnp.concatenate([a.ravel() for a in shown(state)])}


def start_copy(tree: Any) -> None:
    """Begin to copy arrays to the host; whoever reads them later finds them there."""
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.Array):
            leaf.copy_to_host_async()


def updates_of(plan: Plan, state: Any, data: Any, numbers: Any) -> tuple[Any, Any]:
    """The updates with these numbers, from data that is prepared."""

    def step(state: Any, i: Any) -> tuple[Any, Any]:
        slope, metrics = plan.gradient(state, plan.pick(data, i))
        return plan.apply(state, slope), metrics

    state, metrics = jax.lax.scan(step, state, numbers)
    return state, summarised(metrics)


def summarised(metrics: Any) -> Any:
    """Means of what is a number an update; the rest as it is, an update a row."""
    # NaN stands for an update that had nothing to say, such as one without the delayed policy.
    return {n: jnp.nanmean(a) if a.ndim == 1 else a for n, a in metrics.items()}


def counted(tree: Any, updates: int) -> Any:
    """The state of a learner that watched ``updates``: its integers are counts of updates, which
    schedules, bias corrections and target copies go by, and must not fall behind."""
    return jax.tree.map(
        lambda leaf: leaf + updates if jnp.issubdtype(leaf.dtype, jnp.integer) else leaf, tree
    )


def to_device(tree: Any) -> Any:
    """Arrays as device arrays of their own (donation must not free NumPy's memory)."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), tree)


def copied(tree: Any) -> Any:
    """Device arrays as copies of their own, what is NumPy's as it is; in one call."""
    leaves, structure = jax.tree.flatten(tree)
    held = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
    for i, leaf in zip(held, _copies([leaves[i] for i in held]), strict=True):
        leaves[i] = leaf
    return jax.tree.unflatten(structure, leaves)


_copies = jax.jit(lambda leaves: [jnp.copy(leaf) for leaf in leaves])


def accelerated() -> bool:
    """Whether JAX computes on something else than a CPU."""
    return bool(jax.default_backend() != "cpu")


class Forward:
    """An agent's ``forward`` on the device, for NumPy's arrays: compiled once, for ``width`` rows."""

    def __init__(self, forward: Callable[..., Any], parts: Sequence[str], width: int) -> None:
        self._parts = parts
        self._width = width
        self._compiled = jax.jit(partial(forward, jnp), static_argnums=1)

    def placed(self, acting: Mapping[str, Any]) -> dict[str, Any]:
        """What the networks need on the device, the rest in NumPy."""
        device = (*self._parts, "norm")
        return {
            name: jax.device_put(arrays) if name in device else jax.device_get(arrays)
            for name, arrays in acting.items()
        }

    def __call__(self, acting: Any, part: str, observations: Any, memory: Any) -> Any:
        """Outputs and memory after them; rows that are missing are made up and thrown away."""
        count = len(observations)
        padding = max(0, self._width - count)
        needed = {name: acting[name] for name in (part, "norm")}

        def padded(rows: np.ndarray) -> np.ndarray:
            return np.pad(rows, [(0, padding), *[(0, 0)] * (rows.ndim - 1)]) if padding else rows

        inputs = jax.tree.map(padded, (observations, memory))
        found = jax.device_get(self._compiled(needed, part, *inputs))
        return jax.tree.map(lambda rows: rows[:count], found)


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
