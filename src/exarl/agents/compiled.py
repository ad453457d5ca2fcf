"""JAX and optax, imported in one place and set up there, and small tools over their trees.

``from exarl.agents.compiled import jax`` gives code outside of EXARL JAX with the same setup.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import ParamSpec, TypeVar

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax

from exarl.agents.cache import keep_compiled
from exarl.agents.optimizers import TAKES
from exarl.learning.normalise import Moments
from exarl.learning.shuffle import ROUNDS, scattered, table_for
from exarl.types import Array, Arrays, Memory, PyTree

keep_compiled(jax.config)
jax.tree_util.register_dataclass(Moments, ["count", "mean", "squares"], [])

__all__ = ["jax", "jnp", "optax"]
OPTIMIZERS = tuple(TAKES)

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
X = TypeVar("X")
Y = TypeVar("Y")
Compiling = Callable[[], AbstractContextManager[None]]
"""Entered while something compiles."""


# -- optimisers -------------------------------------------------------------------------------------


def optimizer(
    name: str,
    learning_rate: float | Array | optax.Schedule,
    max_grad_norm: float | Array | None,
    *,
    adam_eps: float | Array | None = None,
    betas: tuple[float, float] | None = None,
    weight_decay: float | Array | None = None,
) -> optax.GradientTransformation:
    """An optax optimiser by name, with the global norm of the gradient clipped if a limit is given.

    Numbers that are None are the optimiser's own; TypeError for betas or a weight decay that it does
    not have. Weight decay is for matrices: biases, deviations and temperatures are not drawn towards 0.
    """
    given: dict[str, PyTree] = {"weight_decay": weight_decay}
    given |= {"eps": adam_eps} if "adam_eps" in TAKES[name] else {}
    given |= dict(zip(("b1", "b2"), betas or (None, None), strict=True))
    options = {option: number for option, number in given.items() if number is not None}
    if "weight_decay" in TAKES[name]:
        options["mask"] = lambda params: jax.tree.map(lambda a: a.ndim > 1, params)
    plain: optax.GradientTransformation = getattr(optax, name)(learning_rate, **options)
    if max_grad_norm is None:
        return plain
    return optax.chain(clip_by_global_norm(max_grad_norm), plain)


def clip_by_global_norm(limit: float | Array) -> optax.GradientTransformation:
    """Scale a gradient down to norm ``limit``. The norm is taken by dot products, which XLA hands to
    the matrix library; optax's sum of squares costs a fifth of a small network's update on a CPU."""

    def update(
        gradient: PyTree, state: optax.OptState, _: PyTree = None
    ) -> tuple[PyTree, optax.OptState]:
        squares = sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gradient))
        scale = jnp.minimum(1.0, limit / jnp.maximum(jnp.sqrt(squares), 1e-12))
        return jax.tree.map(lambda leaf: leaf * scale, gradient), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)  # type: ignore[arg-type]


# -- control ----------------------------------------------------------------------------------------


def cond(condition: Array, yes: Callable[[], R], no: Callable[[], R]) -> R:
    """One of two results, of which only the one that is needed is computed."""
    result: R = jax.lax.cond(condition, lambda _: yes(), lambda _: no(), None)
    return result


def scan(step: Callable[[S, X], tuple[S, Y]], state: S, along: PyTree) -> tuple[S, Y]:
    """``step(state, element) -> (state, output)`` along arrays; the last state, and stacked outputs."""
    ends: tuple[S, Y] = jax.lax.scan(step, state, along)  # type: ignore[arg-type]
    return ends


def orders(key: Array, passes: int, count: int) -> Array:
    """A random order of ``count`` rows for each pass, [passes, count]."""
    draw = shuffled if count >= SORTED_BELOW else jax.random.permutation
    return jax.vmap(lambda k: draw(k, count))(jax.random.split(key, passes))


SORTED_BELOW = 1024
"""Rows. Orders of fewer are drawn by sorting, since a small table has too few permutations."""


def shuffled(key: Array, count: int) -> Array:
    """A random order of ``count`` places, int32, which takes no sorting."""
    table = table_for(count)
    keys = jax.random.bits(key, (ROUNDS,), jnp.uint32)

    def move(places: Array) -> Array:
        return scattered(jnp, places, keys, table)

    def beyond(places: Array) -> Array:
        return places >= count

    # What lands in a cell beyond the last place goes on from there until it lands before it.
    order = move(jnp.arange(count, dtype=jnp.uint32))
    if math.prod(table) > count:
        order = jax.lax.while_loop(
            lambda places: beyond(places).any(),
            lambda places: jnp.where(beyond(places), move(places), places),
            order,
        )
    return order.astype(jnp.int32)


class KeyedNormals:
    """A key in the form of a NumPy generator, for one call."""

    def __init__(self, key: Array) -> None:
        self._key = key

    def standard_normal(self, shape: tuple[int, ...], dtype: type[np.float32]) -> Array:
        self._key, key = jax.random.split(self._key)
        return jax.random.normal(key, shape, dtype)


class KeyedNoise:
    """Random numbers for all environments, of one key."""

    def __init__(self, key: Array, width: int) -> None:
        self._key, self._width = key, width

    def uniform(self, count: int) -> Array:
        self._key, key = jax.random.split(self._key)
        return jax.random.uniform(key, (self._width, count))

    def normal(self, count: int) -> Array:
        self._key, key = jax.random.split(self._key)
        return jax.random.normal(key, (self._width, count))


class CompileObserver:
    """Functions to be compiled, and one that calls them.

    JAX runs the Python of a function only to compile it. So ``compiling`` is entered when that
    happens within a call, the first or any other, and left at the call's end.
    """

    def __init__(self, compiling: Compiling) -> None:
        self._compiling = compiling
        self._compiles = False
        self._until_returned = ExitStack()

    def jit(
        self,
        function: Callable[..., R],
        donate: int | tuple[int, ...] = (),
        static: int | tuple[int, ...] = (),
        out_shardings: PyTree = None,
    ) -> Callable[..., R]:
        """``jax.jit`` of a function, given which arguments are donated and which are static."""

        def update(*args: PyTree) -> R:
            if not self._compiles:
                self._compiles = True
                self._until_returned.enter_context(self._compiling())
            return function(*args)

        placed = {} if out_shardings is None else {"out_shardings": out_shardings}
        return jax.jit(update, donate_argnums=donate, static_argnums=static, **placed)

    def call(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function through which all the compiled ones are called."""

        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._until_returned:
                self._compiles = False
                return function(*args, **kwargs)

        return called


# -- trees ------------------------------------------------------------------------------------------


def start_copy(tree: PyTree) -> None:
    """Begin to copy arrays to the host, so that reading them later does not wait for the copy."""
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.Array):
            leaf.copy_to_host_async()


def counted(tree: PyTree, updates: int) -> PyTree:
    """A state after ``updates`` that another learner made: its integers are counts of updates, which
    schedules, bias corrections and target copies go by, and must not fall behind."""
    return jax.tree.map(
        lambda leaf: leaf + updates if jnp.issubdtype(leaf.dtype, jnp.integer) else leaf, tree
    )


def to_device(tree: PyTree) -> PyTree:
    """Arrays as device arrays of their own (donation must not free NumPy's memory)."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), tree)


def copied(tree: PyTree) -> PyTree:
    """Device arrays as copies of their own, NumPy's as they are; in one call."""
    leaves, structure = jax.tree.flatten(tree)
    held = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
    for i, leaf in zip(held, _copies([leaves[i] for i in held]), strict=True):
        leaves[i] = leaf
    return jax.tree.unflatten(structure, leaves)


_copies = jax.jit(lambda leaves: [jnp.copy(leaf) for leaf in leaves])


def to_arrays(tree: PyTree, prefix: str = "") -> Arrays:
    """The leaves of a tree as arrays whose names say where they stand: ``params/q/0/w``."""
    leaves = jax.tree.leaves(tree)
    return {n: np.asarray(leaf) for n, leaf in zip(_names(tree, prefix), leaves, strict=True)}


def from_arrays(like: PyTree, arrays: Mapping[str, np.ndarray], prefix: str = "") -> PyTree:
    """The inverse of ``to_arrays``, with the structure of ``like``; ValueError that names what differs.

    Arrays whose names begin otherwise than any of these are ignored.
    """
    leaves, structure = jax.tree.flatten(like)
    names = _names(like, prefix)
    arrays = as_named_now(arrays, names)
    for name, leaf in zip(names, leaves, strict=True):
        if name not in arrays:
            raise ValueError(f"{name} is not in the checkpoint")
        if np.shape(leaf) != arrays[name].shape:
            raise ValueError(
                f"{name} has shape {arrays[name].shape} in the checkpoint, not {np.shape(leaf)}"
            )
    kinds = {name.partition("/")[0] for name in names}
    for name in arrays.keys() - set(names):
        if name.partition("/")[0] in kinds:
            raise ValueError(f"the checkpoint has {name}, which is not expected")
    return to_device(jax.tree.unflatten(structure, [arrays[name] for name in names]))


def as_named_now(
    arrays: Mapping[str, np.ndarray], names: Sequence[str]
) -> Mapping[str, np.ndarray]:
    """The arrays of a checkpoint under the names that they have in this version.

    Schedules had counts of their own, which are no longer needed. SAC had one optimiser, ``all``, for
    all of its parameters; each of its present ones takes its part of that.
    """
    counts = {n for n in arrays if "optimizer/" in n and n.endswith("/schedule/count")}
    whole = {n for n in arrays if "optimizer/all/" in n}
    if any("optimizer/all/" in name for name in names):
        whole = set()
    kept = {n: array for n, array in arrays.items() if n not in counts | whole}
    for name in names:
        before, found, rest = name.rpartition("optimizer/")
        former = f"{before}optimizer/all/{rest.partition('/')[2]}"
        if found and name not in arrays and former in whole:
            kept[name] = arrays[former]
    return kept


def _names(tree: PyTree, prefix: str) -> list[str]:
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    names = ["/".join([prefix] * bool(prefix) + _steps(tree, path)) for path in paths]
    if len(set(names)) < len(
        names
    ):  # two alike in one chain of optax: their places tell them apart
        names = [jax.tree_util.keystr(path, simple=True, separator="/") for path in paths]
        names = [f"{prefix}/{name}" if prefix else name for name in names]
    return names


def _steps(tree: PyTree, path: Sequence[PyTree]) -> list[str]:
    """The names along a path. One of several in a tuple is named by its kind, as optax's states are
    (``adam``, ``schedule``), else by its place; the only one is not named."""
    names: list[str] = []
    for key in path:
        if isinstance(key, jax.tree_util.SequenceKey):
            full = [child for child in tree if jax.tree.leaves(child)]
            tree = tree[key.idx]
            if hasattr(tree, "_fields"):
                kind = type(tree).__name__.removeprefix("ScaleBy").removesuffix("State")
                names.append(kind.lower())
            elif len(full) > 1:
                names.append(str(key.idx))
        elif isinstance(key, jax.tree_util.GetAttrKey):
            tree = getattr(tree, key.name)
            names.append(key.name)
        else:
            tree = tree[key.key] if isinstance(key, jax.tree_util.DictKey) else None
            names.append(str(key.key))
    return names


# -- acting -----------------------------------------------------------------------------------------


def accelerated() -> bool:
    """Whether JAX computes on something else than a CPU."""
    return bool(jax.default_backend() != "cpu")


class DeviceForward:
    """The networks of a policy on the device, for NumPy's arrays: compiled once, for ``width`` rows."""

    def __init__(
        self,
        forward: Callable[..., tuple[Array, Memory]],
        parts: Sequence[str],
        width: int,
    ) -> None:
        self._parts = parts
        self._width = width
        self._compiled = jax.jit(partial(forward, jnp), static_argnums=1)

    def placed(self, acting: Mapping[str, PyTree]) -> dict[str, PyTree]:
        """What the networks need on the device, the rest in NumPy."""
        device = (*self._parts, "norm")
        return {
            name: jax.device_put(arrays) if name in device else jax.device_get(arrays)
            for name, arrays in acting.items()
        }

    def __call__(
        self, acting: Mapping[str, PyTree], part: str, observations: Array, memory: Memory | None
    ) -> tuple[Array, Memory]:
        """Outputs and memory after them; missing rows are filled up and their results dropped."""
        count = len(observations)
        padding = max(0, self._width - count)
        needed = {name: acting[name] for name in (part, "norm")}

        def padded(rows: np.ndarray) -> np.ndarray:
            return np.pad(rows, [(0, padding), *[(0, 0)] * (rows.ndim - 1)]) if padding else rows

        inputs = jax.tree.map(padded, (observations, memory))
        made = jax.device_get(self._compiled(needed, part, *inputs))
        rows: tuple[Array, Memory] = jax.tree.map(lambda rows: rows[:count], made)
        return rows
