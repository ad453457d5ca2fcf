"""A replay that lives on the learner's device: pure functions over arrays, to be compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from exarl.agents.blocks import KNOWN
from exarl.agents.compiled import KeyedNormals, jax, jnp
from exarl.types import Array, Batch

EPSILON = 1e-6
"""Added to every priority, so that no row becomes unreachable."""

Draws = Callable[[KeyedNormals, int, int], Mapping[str, Array]]
"""Random numbers beside the rows of a batch, see ``Algorithm.draws``."""


class DeviceRing(NamedTuple):
    """The newest transitions, each a row of named arrays [capacity, ...]."""

    rows: Batch
    next: Array  # the place of the next row
    size: Array  # how many rows there are


class Store(NamedTuple):
    """The rows, and what drawing them needs."""

    ring: DeviceRing
    seed: Array
    mass: Array | None = None  # [capacity], each row's priority to the power alpha; None: all alike
    largest: Array | None = None  # of these so far, which a new row gets
    prior: Batch | None = None  # rows from before the run, which never give way


def empty_ring(capacity: int, like: Batch) -> DeviceRing:
    """A ring for rows like these [N, ...], of which only shapes and dtypes are used."""
    like = {name: array for name, array in like.items() if name != KNOWN}
    rows = {n: jnp.zeros((capacity, *a.shape[1:]), a.dtype) for n, a in like.items()}
    return DeviceRing(rows, jnp.int32(0), jnp.int32(0))


def empty(capacity: int, like: Batch, alpha: float, seed: int) -> Store:
    """A store for rows like these, with priorities where ``alpha`` is not 0."""
    ring = empty_ring(capacity, like)
    if not alpha:
        return Store(ring, jnp.uint32(seed))
    return Store(ring, jnp.uint32(seed), jnp.zeros(capacity), jnp.float32(1))


def places_for(ring: DeviceRing, rows: Batch) -> tuple[Array, Array]:
    """Where rows [N, ...] go, and how many they are without those that are not ``known``. A row that
    is not kept has a place outside of the ring, where nothing is written."""
    capacity, count = (len(next(iter(group.values()))) for group in (ring.rows, rows))
    known = jnp.asarray(rows.get(KNOWN, jnp.ones(count, bool)))
    numbers = jnp.cumsum(known, dtype=jnp.int32) - 1
    kept = known & (numbers > numbers[-1] - capacity)
    return jnp.where(kept, (ring.next + numbers) % capacity, capacity), numbers[-1] + 1


def add_to_ring(ring: DeviceRing, rows: Batch) -> DeviceRing:
    """The ring with more rows [N, ...], the oldest giving way when it is full."""
    capacity = len(next(iter(ring.rows.values())))
    places, count = places_for(ring, rows)
    return DeviceRing(
        {n: jnp.asarray(a).at[places].set(rows[n], mode="drop") for n, a in ring.rows.items()},
        (ring.next + count) % capacity,
        jnp.minimum(ring.size + count, capacity),
    )


def added(store: Store, rows: Batch) -> Store:
    """The store with more rows, as likely as the likeliest so far."""
    ring = add_to_ring(store.ring, rows)
    if store.mass is None:
        return store._replace(ring=ring)
    new, _ = places_for(store.ring, rows)
    mass = jnp.asarray(store.mass).at[new].set(store.largest, mode="drop")
    return store._replace(ring=ring, mass=mass)


def sums_of(store: Store) -> Array | None:
    """Cumulative sums of the priorities, which drawing needs; None where all rows are alike."""
    return None if store.mass is None else jnp.cumsum(store.mass)


def batch(
    draws: Draws,
    size: int,
    store: Store,
    sums: Array | None,
    beta: float | Array,
    number: Array,
    share: int = 0,
) -> tuple[dict[str, Array], Array | None]:
    """The batch of one update, and the places of its rows (None where all are alike). The first
    ``share`` rows are of the prior data, as are all while there are no others; no place is theirs."""
    rows_key, noise_key = jax.random.split(jax.random.fold_in(jax.random.key(store.seed), number))
    noise = {name: a[0] for name, a in draws(KeyedNormals(noise_key), 1, size).items()}
    if store.prior is not None:
        prior_key, rows_key = jax.random.split(rows_key)
        rows, places = _drawn(store, sums, beta, rows_key, size - share)
        count = len(next(iter(store.prior.values())))
        chosen = jax.random.randint(prior_key, (size,), 0, count)
        before = {name: array[chosen] for name, array in store.prior.items()}
        if places is not None:
            before["weight"] = jnp.ones(size)
        empty = store.ring.size == 0
        own = {n: jnp.where(empty, before[n][share:], array) for n, array in rows.items()}
        rows = {name: jnp.concatenate([before[name][:share], own[name]]) for name in own}
        if places is not None:
            places = jnp.where(empty, len(sums), places)  # type: ignore[arg-type]  # nothing is there
        return {**rows, **noise}, places
    rows, places = _drawn(store, sums, beta, rows_key, size)
    return {**rows, **noise}, places


def _drawn(
    store: Store, sums: Array | None, beta: float | Array, rows_key: Array, size: int
) -> tuple[dict[str, Array], Array | None]:
    """Rows of the ring, and their places."""
    if sums is None:
        places = jax.random.randint(rows_key, (size,), 0, store.ring.size)
        return {n: array[places] for n, array in store.ring.rows.items()}, None
    found = jax.random.uniform(rows_key, (size,)) * sums[-1]
    places = jnp.searchsorted(sums, found, side="right", method="scan_unrolled")
    places = jnp.minimum(places, store.ring.size - 1)
    assert store.mass is not None
    mass = store.mass[places]
    weight = (mass.min() / mass) ** beta  # the number of rows and the sum cancel
    rows = {name: array[places] for name, array in store.ring.rows.items()}
    return {**rows, "weight": weight}, places


def rated(store: Store, places: Array, priority: Array, alpha: float) -> Store:
    """The store with new priorities; what a row had before goes first, so that the order of equal
    places does not matter, as it otherwise would on a GPU."""
    assert store.mass is not None and store.largest is not None
    mass = (jnp.abs(priority) + EPSILON) ** alpha
    mass = jnp.where(jnp.isfinite(mass), mass, store.largest)
    kept = jnp.asarray(store.mass).at[places].set(0).at[places].max(mass)
    return store._replace(mass=kept, largest=jnp.maximum(store.largest, mass.max()))
