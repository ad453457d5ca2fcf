"""A replay that lives on the learner's device: pure functions over arrays, to be compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from exarl.agents.compiled import jax, jnp


class Ring(NamedTuple):
    """The newest transitions, each a row of named arrays [capacity, ...]."""

    rows: dict[str, Any]
    next: Any  # the place of the next row
    size: Any  # how many rows there are


def empty(capacity: int, like: Mapping[str, Any]) -> Ring:
    """A ring for rows like these [N, ...], which only tell shapes and dtypes."""
    rows = {n: jnp.zeros((capacity, *a.shape[1:]), a.dtype) for n, a in like.items()}
    return Ring(rows, jnp.int32(0), jnp.int32(0))


def add(ring: Ring, rows: Mapping[str, Any]) -> Ring:
    """The ring with more rows [N, ...], the oldest giving way when it is full."""
    capacity, count = (len(next(iter(group.values()))) for group in (ring.rows, rows))
    kept = min(count, capacity)
    places = (ring.next + jnp.arange(count - kept, count)) % capacity
    return Ring(
        {n: a.at[places].set(rows[n][count - kept :]) for n, a in ring.rows.items()},
        (ring.next + count) % capacity,
        jnp.minimum(ring.size + count, capacity),
    )


def sample(ring: Ring, key: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """Rows drawn uniformly with replacement, each array with the leading ``shape``."""
    places = jax.random.randint(key, shape, 0, ring.size)
    return {name: array[places] for name, array in ring.rows.items()}
