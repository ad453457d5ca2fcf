"""Running statistics: what observations and returns look like so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

CLIP = 10.0
"""A normalised observation is cut off at so many standard deviations."""


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations of everything seen (float64; on a device, float32)."""

    count: Any
    mean: np.ndarray
    squares: np.ndarray

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> Moments:
        return cls(0.0, np.zeros(shape), np.zeros(shape))

    @property
    def std(self) -> np.ndarray:
        """The standard deviation; 1 as long as nothing varies."""
        found: np.ndarray = deviation(np, self)
        return found


def deviation(xp: Any, moments: Moments) -> Any:
    """The standard deviation of what was seen; 1 as long as nothing varies."""
    found = xp.sqrt(moments.squares / xp.maximum(moments.count, 1.0))
    return xp.where(found > 1e-6, found, 1.0)


def sums_around(moments: Moments, rows: Any, xp: Any = np) -> Any:
    """What ``rows`` [N, ...] add, as one vector that can be summed over learners: their number, and
    sums and squares of their deviations from the mean so far."""
    deviations = rows.reshape(len(rows), moments.mean.size) - moments.mean.ravel()
    parts = [xp.asarray([len(rows)]), deviations.sum(0), (deviations**2).sum(0)]
    return xp.concatenate(parts)


def with_sums(moments: Moments, sums: Any, xp: Any = np) -> Moments:
    """The moments after rows that gave these ``sums_around`` them."""
    count = moments.count + sums[0]
    first, second = xp.reshape(sums[1:], (2, *moments.mean.shape))
    rows = xp.maximum(count, 1.0)
    squares = moments.squares + second - first**2 / rows
    return Moments(count, moments.mean + first / rows, xp.maximum(squares, 0.0))


def normalised(xp: Any, observations: Any, mean: Any, std: Any) -> Any:
    """Deviations from the mean in units of the standard deviation, cut off at ``CLIP``."""
    return xp.clip((observations - mean) / std, -CLIP, CLIP)
