"""Running statistics of observations and returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exarl.types import Array, Namespace

CLIP = 10.0
"""Normalised observations are clipped to this many standard deviations."""


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations of everything seen (float64; on a device, float32)."""

    count: float | Array
    mean: Array
    squares: Array

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> Moments:
        return cls(0.0, np.zeros(shape), np.zeros(shape))

    @property
    def std(self) -> np.ndarray:
        """The standard deviation; 1 where nothing varies."""
        return np.asarray(deviation(np, self))


def deviation(xp: Namespace, moments: Moments) -> Array:
    """The standard deviation so far; 1 where nothing varies."""
    found = xp.sqrt(moments.squares / xp.maximum(moments.count, 1.0))
    return xp.where(found > 1e-6, found, 1.0)


def sums_around(moments: Moments, rows: Array, xp: Namespace = np) -> Array:
    """The contribution of ``rows`` [N, ...] as one vector, which can be summed over learners: their
    number, and the sums of their deviations from the present mean and of the squares of these."""
    deviations = rows.reshape(len(rows), moments.mean.size) - moments.mean.ravel()
    parts = [xp.asarray([len(rows)]), deviations.sum(0), (deviations**2).sum(0)]
    return xp.concatenate(parts)


def with_sums(moments: Moments, sums: Array, xp: Namespace = np) -> Moments:
    """The moments after rows whose ``sums_around`` these moments are given."""
    count = moments.count + sums[0]
    first, second = xp.reshape(sums[1:], (2, *moments.mean.shape))
    rows = xp.maximum(count, 1.0)
    squares = moments.squares + second - first**2 / rows
    return Moments(count, moments.mean + first / rows, xp.maximum(squares, 0.0))


def normalised(xp: Namespace, observations: Array, mean: Array, std: Array) -> Array:
    """Deviations from the mean in units of the standard deviation, clipped to ``CLIP``."""
    return xp.clip((observations - mean) / std, -CLIP, CLIP)
