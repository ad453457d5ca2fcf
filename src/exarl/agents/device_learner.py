"""A learner whose replay lives on its device: rows go in, batches are drawn and updates made in one
compiled call, and nothing but the rows of a block ever travels there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from exarl.agents import device_replay
from exarl.agents.compiled import (
    Normals,
    Noticed,
    Plan,
    Shown,
    jax,
    jnp,
    summarised,
    with_weights,
)
from exarl.agents.device_replay import Ring
from exarl.errors import ConfigError
from exarl.types import Arrays

EPSILON = 1e-6
"""Added to every priority, so that no row becomes unreachable."""

Draws = Callable[[Any, int, int], Mapping[str, Any]]


class Store(NamedTuple):
    """The rows, and what drawing them needs."""

    ring: Ring
    seed: Any
    mass: Any = None  # [capacity], each row's priority to the power ``alpha``; None: all alike
    largest: Any = None  # of these so far, which a new row gets


class DeviceReplay:
    """Owns the rows on the device; ``learn`` adds a block's and makes its updates.

    Update n draws with a key made of the seed and n, so that a restored replay goes on exactly. With
    ``alpha`` rows are drawn in proportion to their priorities: those at the block's beginning for all
    its updates, set anew after the last (of a row drawn twice the largest). A priority that is not
    finite counts as the largest so far.
    """

    def __init__(
        self,
        plan: Plan,
        shown: Shown,
        draws: Draws,
        compiling: Callable[[], AbstractContextManager[Any]] = nullcontext,
        *,
        capacity: int,
        size: int,
        alpha: float,
        seed: int,
    ) -> None:
        self._capacity, self._alpha, self._seed = capacity, alpha, seed
        self._store: Store | None = None
        noticed = Noticed(compiling)
        learn = partial(_learned, plan, shown, partial(batch, draws, size), alpha)
        self._add = jax.jit(added, donate_argnums=0)
        self._compiled = noticed.jit(learn, donate_argnums=(0, 1), static_argnums=5)
        self._learn = noticed.call(self._compiled)

    def add(self, rows: Arrays) -> None:
        """Append rows, the oldest giving way when there is no room."""
        self._store = self._add(self._store or self._empty(rows), rows)

    def learn(
        self, state: Any, rows: Arrays, first: int, updates: int, beta: float
    ) -> tuple[Any, Any]:
        """The learner's state and the metrics after ``updates`` from number ``first`` on."""
        numbers = (np.int32(first), np.float32(beta))
        store = self._store or self._empty(rows)
        state, self._store, metrics = self._learn(state, store, rows, *numbers, updates)
        return state, metrics

    def state(self) -> Arrays:
        """Everything needed to continue, as named arrays; rows as far as there are any."""
        seed = {"seed": np.array(self._seed)}
        if self._store is None:
            return seed
        ring, _, mass, largest = self._store
        size = int(ring.size)
        filled = {f"rows/{name}": np.asarray(array)[:size] for name, array in ring.rows.items()}
        counts = {"next": np.array(ring.next), "size": np.array(ring.size)}
        if mass is None:
            return {**seed, **counts, **filled}
        priorities = {"mass": np.asarray(mass)[:size], "largest": np.array(largest)}
        return {**seed, **counts, **filled, **priorities}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over what ``state`` gave; ValueError where the replay had another capacity."""
        self._seed, self._store = int(state["seed"]), None
        if "size" not in state:
            return
        size, place = int(state["size"]), int(state["next"])
        if size > self._capacity or (size < self._capacity and place != size):
            raise ValueError(f"the stored replay had another capacity than {self._capacity}")
        stored = {n.removeprefix("rows/"): a for n, a in state.items() if n.startswith("rows/")}
        store = self._empty(stored)
        rows = {n: _filled(array, stored[n]) for n, array in store.ring.rows.items()}
        store = store._replace(ring=Ring(rows, jnp.int32(place), jnp.int32(size)))
        if self._alpha:
            largest = jnp.float32(state["largest"])
            store = store._replace(mass=_filled(store.mass, state["mass"]), largest=largest)
        self._store = store

    def _empty(self, rows: Arrays) -> Store:
        """A store for rows like these; ConfigError when the device has no room for it."""
        like = {name: jnp.asarray(array[:1]) for name, array in rows.items()}
        needed = self._capacity * sum(array.nbytes for array in like.values())
        try:
            if needed > (free := free_bytes()):
                raise MemoryError(f"{free / 1e9:.3g} GB are free")
            return empty(self._capacity, like, self._alpha, self._seed)
        except (MemoryError, jax.errors.JaxRuntimeError) as error:
            raise ConfigError(
                f"replay_capacity={self._capacity} needs {needed / 1e9:.3g} GB on the learner's"
                f" device ({error}): lower it, or use replay_device host"
            ) from error


def free_bytes() -> float:
    """What the first device has left; of a CPU the machine's memory."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return float(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _filled(array: Any, rows: np.ndarray) -> Any:
    """A device array like ``array``, its first rows being these."""
    whole = np.zeros(array.shape, array.dtype)
    whole[: len(rows)] = rows
    return jnp.array(whole, copy=True)


def empty(capacity: int, like: Mapping[str, Any], alpha: float, seed: int) -> Store:
    """A store for rows like these, with priorities where ``alpha`` is not 0."""
    ring = device_replay.empty(capacity, like)
    if not alpha:
        return Store(ring, jnp.uint32(seed))
    return Store(ring, jnp.uint32(seed), jnp.zeros(capacity), jnp.float32(1))


def added(store: Store, rows: Mapping[str, Any]) -> Store:
    """The store with more rows, as likely as the likeliest so far."""
    ring = device_replay.add(store.ring, rows)
    if store.mass is None:
        return store._replace(ring=ring)
    count, capacity = len(next(iter(rows.values()))), len(store.mass)
    new = (store.ring.next + jnp.arange(max(0, count - capacity), count)) % capacity
    return store._replace(ring=ring, mass=store.mass.at[new].set(store.largest))


def batch(
    draws: Draws, size: int, store: Store, sums: Any, beta: Any, number: Any
) -> tuple[Any, Any]:
    """The batch of one update, and the places of its rows (None where all are alike)."""
    rows_key, noise_key = jax.random.split(jax.random.fold_in(jax.random.key(store.seed), number))
    noise = {name: a[0] for name, a in draws(Normals(noise_key), 1, size).items()}
    if sums is None:
        return {**device_replay.sample(store.ring, rows_key, (size,)), **noise}, None
    found = jax.random.uniform(rows_key, (size,)) * sums[-1]
    places = jnp.searchsorted(sums, found, side="right", method="scan_unrolled")
    places = jnp.minimum(places, store.ring.size - 1)
    mass = store.mass[places]
    weight = (mass.min() / mass) ** beta  # the number of rows and the sum cancel
    rows = {name: array[places] for name, array in store.ring.rows.items()}
    return {**rows, **noise, "weight": weight}, places


def _learned(
    plan: Plan,
    shown: Shown,
    draw: Callable[..., tuple[Any, Any]],
    alpha: float,
    state: Any,
    store: Store,
    rows: Any,
    first: Any,
    beta: Any,
    updates: int,
) -> tuple[Any, Store, Any]:
    store = added(store, rows)
    state, (mass, largest), metrics = updated(plan, draw, alpha, state, store, first, beta, updates)
    store = store._replace(mass=mass, largest=largest)
    return state, store, with_weights(metrics, shown, state)


def updated(
    plan: Plan,
    draw: Callable[..., tuple[Any, Any]],
    alpha: Any,
    state: Any,
    store: Store,
    first: Any,
    beta: Any,
    updates: int,
) -> tuple[Any, tuple[Any, Any], Any]:
    """The learner's state after ``updates``, the store's new priorities, and the metrics."""
    sums = None if store.mass is None else jnp.cumsum(store.mass)

    def step(state: Any, number: Any) -> tuple[Any, Any]:
        rows, places = draw(store, sums, beta, number)
        slope, metrics = plan.gradient(state, rows)
        return plan.apply(state, slope), (metrics, places)

    state, (metrics, places) = jax.lax.scan(step, state, first + jnp.arange(updates))
    priority = metrics.pop("priority", None)
    if places is not None and priority is not None:
        store = _rated(store, places.ravel(), priority.ravel(), alpha)
    return state, (store.mass, store.largest), summarised(metrics)


def _rated(store: Store, places: Any, priority: Any, alpha: float) -> Store:
    """The store with new priorities; what a row had before goes first, and the order of equal places
    does not matter, which it else would on a GPU."""
    mass = (jnp.abs(priority) + EPSILON) ** alpha
    mass = jnp.where(jnp.isfinite(mass), mass, store.largest)
    kept = store.mass.at[places].set(0).at[places].max(mass)
    return store._replace(mass=kept, largest=jnp.maximum(store.largest, mass.max()))
