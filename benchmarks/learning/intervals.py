"""Statistics of few runs, as Agarwal et al. 2021 (arXiv 2108.13264) recommend: interquartile means,
bootstrap intervals, and the probability that a run of one method is better than one of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES = 10_000


def interquartile_mean(values: ArrayLike) -> np.ndarray:
    """The mean of the middle half [..., runs] -> [...]."""
    ordered = np.sort(values, axis=-1)
    cut = ordered.shape[-1] // 4
    return ordered[..., cut : ordered.shape[-1] - cut].mean(-1)  # type: ignore[no-any-return]


def interval(
    values: Sequence[float], statistic: Callable[[np.ndarray], np.ndarray] = interquartile_mean
) -> tuple[float, float]:
    """The 95% bootstrap interval (percentiles) of a statistic of the runs."""
    drawn = _resampled(np.asarray(values), np.random.default_rng(0))
    low, high = np.percentile(statistic(drawn), (2.5, 97.5))
    return float(low), float(high)


def improvement(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """The probability that a run of ours is better than one of theirs (a tie counts half), and its 95%
    bootstrap interval."""
    rng = np.random.default_rng(0)
    a, b = np.asarray(ours), np.asarray(theirs)
    better = (a[:, None] > b).astype(float) + 0.5 * (a[:, None] == b)
    rows = rng.integers(len(a), size=(RESAMPLES // 5, len(a)))
    columns = rng.integers(len(b), size=(RESAMPLES // 5, len(b)))
    drawn = [better[np.ix_(row, column)].mean() for row, column in zip(rows, columns, strict=True)]
    low, high = np.percentile(drawn, (2.5, 97.5))
    return float(better.mean()), float(low), float(high)


def _resampled(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return values[rng.integers(len(values), size=(RESAMPLES, len(values)))]
