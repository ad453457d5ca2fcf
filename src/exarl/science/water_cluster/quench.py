"""Local minimisation over ``xp``: L-BFGS without a line search, as one loop.

Steps are limited in length, and are undone and shortened when the energy would rise, which for
clusters takes fewer evaluations than a line search (compare Wales' GMIN).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from exarl.envs.functional import until
from exarl.types import Array, Namespace

MEMORY = 8
"""Number of stored steps, each with its change of the gradient."""
LONGEST = 0.35
"""Largest change of a coordinate in a step."""
SHORTER, TRIES = 0.2, 10
"""Factor for a step that raised the energy, and how often in a row that may happen."""
CAUTIOUS = 0.01
"""Step along the gradient while the curvature is unknown."""

UNIT, ABOVE = np.eye(MEMORY), np.triu(np.ones((MEMORY, MEMORY)), 1)

Function = Callable[[Array], tuple[Array, Array]]


class Descent(NamedTuple):
    """The state of a minimisation."""

    x: Array  # [N]
    energy: Array
    gradient: Array  # [N]
    step: Array  # [N] to try next
    history: Array  # [MEMORY, 2, N] steps and changes of the gradient, newest last, 0 if none
    evaluations: Array
    refused: Array  # consecutive steps that raised the energy


def minimise(
    xp: Namespace, function: Function, start: Array, *, tolerance: float = 1e-3, limit: int = 1000
) -> Descent:
    """Minimise from ``start`` [N] until no entry of the gradient exceeds ``tolerance``.

    ``function`` returns energy and gradient, and is called at most ``limit`` times. The energy of the
    result is not above that of the start, except for rounding. In single precision the gradient is
    accurate to about 0.05 kJ/mol/Angstrom, which is then the least tolerance.
    """
    tolerance = max(tolerance, 4e5 * float(np.finfo(start.dtype).eps))
    energy, gradient = function(start)
    first = Descent(
        start,
        energy,
        gradient,
        _limited(xp, -CAUTIOUS * gradient),
        xp.zeros((MEMORY, 2, len(start)), start.dtype),
        xp.asarray(1),
        xp.asarray(0),
    )

    def done(now: Descent) -> Array:
        flat = xp.abs(now.gradient).max() <= tolerance
        return flat | (now.evaluations >= limit) | (now.refused >= TRIES)

    return until(xp, done, lambda now: _advance(xp, function, now), first)


def _advance(xp: Namespace, function: Function, now: Descent) -> Descent:
    x = now.x + now.step
    energy, gradient = function(x)
    down = energy <= now.energy + 10 * np.finfo(x.dtype).eps * xp.abs(now.energy)
    change = gradient - now.gradient
    # A step with negative curvature has no information about the shape of the minimum.
    useful = down & (now.step @ change > 1e-10)
    grown = xp.concatenate([now.history[1:], xp.stack([now.step, change])[None]])
    history = xp.where(useful, grown, now.history)
    gradient = xp.where(down, gradient, now.gradient)
    forward = _limited(xp, _direction(xp, gradient, history))
    return Descent(
        xp.where(down, x, now.x),
        xp.where(down, energy, now.energy),
        gradient,
        xp.where(down, forward, SHORTER * now.step),
        history,
        now.evaluations + 1,
        xp.where(down, 0, now.refused + 1),
    )


def _direction(xp: Namespace, gradient: Array, history: Array) -> Array:
    """Minus the gradient times the inverse Hessian that the history suggests.

    The compact form of Byrd, Nocedal and Schnabel (Math. Programming 63 (1994) 129): the result is a
    combination of the stored vectors with weights from their inner products. It takes half as many
    array operations as the usual two loops.
    """
    vectors = xp.concatenate([history.reshape(2 * MEMORY, -1), gradient[None]])
    products = vectors @ vectors.T
    mixed, changes = products[0:-1:2, 1:-1:2], products[1:-1:2, 1:-1:2]
    along, against = products[0:-1:2, -1], products[1:-1:2, -1]
    curvature = mixed.diagonal()
    empty = curvature == 0
    diagonal = xp.where(empty, 1, curvature)
    above = mixed * ABOVE / diagonal[:, None]  # its 8th power is 0, so the series below is exact
    squared = above @ above
    inverse = (UNIT - above) @ (UNIT + squared) @ (UNIT + squared @ squared) / diagonal
    scale = xp.where(empty[-1], CAUTIOUS, curvature[-1] / (changes[-1, -1] + empty[-1]))
    inner = inverse @ along
    outer = (curvature * inner + scale * (changes @ inner - against)) @ inverse
    weights = xp.stack([-outer, scale * inner], 1).reshape(-1)
    return weights @ vectors[:-1] - scale * gradient


def _limited(xp: Namespace, step: Array) -> Array:
    """``step`` shortened so that no coordinate changes by more than LONGEST."""
    return step * (LONGEST / xp.maximum(xp.abs(step).max(), LONGEST))
