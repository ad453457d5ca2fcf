"""Several passes of minibatches over a block, each pass in a random order."""

from __future__ import annotations

from exarl.types import Array


def minibatches_of(steps: int, minibatches: int | None, size: int) -> int:
    """How many a pass over a block of ``steps`` steps has: as given, else as many as give each about
    ``size`` steps."""
    return max(1, round(steps / size)) if minibatches is None else minibatches


def parts_of(orders: Array, updates: int) -> Array:
    """The rows of each update [updates, rows], from random orders [passes, count]; a remainder waits
    for the next pass."""
    passes, count = orders.shape
    parts = updates // passes
    size = count // parts
    return orders[:, : size * parts].reshape(-1, size)
