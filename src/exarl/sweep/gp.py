"""A Gaussian process over settings, and the setting with the largest expected improvement.

The kernel is Matérn 5/2 with one length per parameter, on the unit cube: a range is one column
(logarithmic ranges in log scale), a list of choices one column per choice. Values are maximised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from exarl.sweep.space import Choices, Point, Space, Value

STARTUP = 10
"""Number of evenly spread settings before the process is used."""

_ROOT5 = math.sqrt(5.0)
_LENGTHS, _NOISE = (0.03, 10.0), (1e-6, 1.0)
_CANDIDATES, _AROUND, _ROUNDS = 1024, 64, 4


class GaussianProcess(NamedTuple):
    """A process conditioned on data; ``lengths`` has one entry per column, values are standardised."""

    inputs: np.ndarray
    lengths: np.ndarray
    signal: float
    factor: np.ndarray
    weights: np.ndarray
    mean: float
    scale: float


def matern(a: np.ndarray, b: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Correlations of the rows of ``a`` with those of ``b``."""
    r = np.sqrt(_squares(a / lengths, b / lengths))
    correlations: np.ndarray = (1 + _ROOT5 * r + 5 / 3 * r**2) * np.exp(-_ROOT5 * r)
    return correlations


def condition(
    inputs: np.ndarray,
    values: np.ndarray,
    lengths: np.ndarray,
    signal: float = 1.0,
    noise: float = 1e-6,
) -> GaussianProcess:
    """The process with these parameters, conditioned on ``values`` at ``inputs``.

    ``signal`` and ``noise`` are variances of the standardised values.
    """
    mean, scale = float(values.mean()), float(values.std()) or 1.0
    covariance = signal * matern(inputs, inputs, lengths) + noise * np.eye(len(inputs))
    factor = np.linalg.cholesky(covariance)
    weights = np.linalg.solve(factor.T, np.linalg.solve(factor, (values - mean) / scale))
    return GaussianProcess(inputs, lengths, signal, factor, weights, mean, scale)


def predict(process: GaussianProcess, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the value without noise at each row of ``inputs``."""
    between = process.signal * matern(inputs, process.inputs, process.lengths)
    half = np.linalg.solve(process.factor, between.T)
    variance = np.maximum(process.signal - (half**2).sum(0), 1e-12)
    mean = process.mean + process.scale * (between @ process.weights)
    return mean, process.scale * np.sqrt(variance)


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """The expected excess over ``best`` of a normally distributed value; never negative."""
    from scipy.special import ndtr

    z = (mean - best) / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    improvement: np.ndarray = deviation * (z * ndtr(z) + density)
    return improvement


def fit(inputs: np.ndarray, values: np.ndarray, owners: np.ndarray) -> GaussianProcess:
    """The process whose lengths, signal and noise maximise the likelihood of the data.

    ``owners`` has the number of each column's parameter; columns of one parameter share a length.
    """
    from scipy.optimize import minimize

    count = int(owners.max()) + 1
    standard = (values - values.mean()) / (values.std() or 1.0)
    bounds = [_logs(_LENGTHS)] * count + [_logs((0.05, 20.0)), _logs(_NOISE)]
    starts = [np.log([0.4] * count + [1.0, noise]) for noise in (1e-4, 0.1)]
    found = [
        minimize(_unlikely, start, (inputs, standard, owners), "TNC", jac=True, bounds=bounds)
        for start in starts
    ]
    best = np.exp(min(found, key=lambda f: f.fun).x)
    return condition(inputs, values, best[:count][owners], float(best[-2]), float(best[-1]))


def suggest(
    space: Space,
    results: Sequence[tuple[Point, float]],
    pending: Sequence[Point],
    rng: np.random.Generator,
) -> dict[str, Value]:
    """The setting with the largest expected improvement over the ``results`` so far.

    ``pending`` settings count as if they had the value that the process predicts, so that several
    can run at once.
    """
    owners = owners_of(space)
    inputs = np.array([encode(space, point) for point, _ in results])
    values = np.array([value for _, value in results], float)
    process = fit(inputs, values, owners)
    if pending:
        waiting = np.array([encode(space, point) for point in pending])
        values = np.concatenate([values, predict(process, waiting)[0]])
        inputs = np.concatenate([inputs, waiting])
        noise = max(float((process.factor[0, 0]) ** 2 - process.signal), _NOISE[0])
        process = condition(inputs, values, process.lengths, process.signal, noise)
    best = float(predict(process, inputs)[0].max())  # of the smooth prediction: results are noisy

    places = rng.random((_CANDIDATES, len(space)))
    for width in (0.1 / 3**i for i in range(_ROUNDS)):
        rows = np.array([encode(space, decode(space, place)) for place in places])
        gains = expected_improvement(*predict(process, rows), best)
        leaders = places[np.argsort(-gains, kind="stable")[:8]]
        steps = rng.normal(0.0, width, (_AROUND, *leaders.shape))
        moved = np.clip(leaders + steps, 0.0, 1.0 - 1e-9).reshape(-1, len(space))
        places = np.concatenate([leaders, moved])
    rows = np.array([encode(space, decode(space, place)) for place in places])
    gains = expected_improvement(*predict(process, rows), best)
    return decode(space, places[int(np.argmax(gains))])


def early(space: Space, sweep_seed: int, number: int) -> dict[str, Value]:
    """Setting ``number`` of an evenly spread sequence: multiples of the powers of a generalised golden
    ratio, from a random start."""
    ratio = 2.0
    for _ in range(40):  # the root of x^(d + 1) = x + 1
        ratio = (1 + ratio) ** (1 / (len(space) + 1))
    strides = ratio ** -np.arange(1.0, len(space) + 1)
    start = np.random.default_rng(sweep_seed).random(len(space))
    return decode(space, (start + number * strides) % 1.0)


def encode(space: Space, point: Point) -> list[float]:
    """A setting as a row of numbers: one for a range, one for each choice."""
    row: list[float] = []
    for key, dimension in space.items():
        if isinstance(dimension, Choices):
            row += [float(value == point[key]) for value in dimension.values]
        else:
            row.append(dimension.place(point[key]))
    return row


def decode(space: Space, places: Sequence[float] | np.ndarray) -> dict[str, Value]:
    """The setting at a point of the unit cube."""
    named = zip(space.items(), places, strict=True)
    return {key: dimension.at(float(place)) for (key, dimension), place in named}


def owners_of(space: Mapping[str, object]) -> np.ndarray:
    """The number of the parameter of each column of ``encode``."""
    widths = [len(d.values) if isinstance(d, Choices) else 1 for d in space.values()]
    return np.repeat(np.arange(len(widths)), widths)


def _unlikely(
    theta: np.ndarray, inputs: np.ndarray, values: np.ndarray, owners: np.ndarray
) -> tuple[float, np.ndarray]:
    """The negative log likelihood and its gradient; ``theta``: logs of lengths, signal and noise."""
    lengths, (signal, noise) = np.exp(theta[:-2])[owners], np.exp(theta[-2:])
    apart = ((inputs[:, None] - inputs[None]) / lengths) ** 2
    r = np.sqrt(apart.sum(-1))
    fade = np.exp(-_ROOT5 * r)
    smooth = signal * (1 + _ROOT5 * r + 5 / 3 * r**2) * fade
    factor = np.linalg.cholesky(smooth + (noise + 1e-10) * np.eye(len(values)))
    inverse = np.linalg.inv(factor)
    inverse = inverse.T @ inverse
    weights = inverse @ values
    loss = 0.5 * values @ weights + np.log(np.diag(factor)).sum()
    pull = inverse - np.outer(weights, weights)
    by_column = 5 / 3 * signal * ((1 + _ROOT5 * r) * fade * pull)[:, :, None] * apart
    by_length = np.bincount(owners, by_column.sum((0, 1)))
    gradient = 0.5 * np.array([*by_length, (pull * smooth).sum(), noise * np.trace(pull)])
    return float(loss), gradient


def _squares(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Squared distances between rows."""
    apart = a[:, None] - b[None]
    squares: np.ndarray = (apart**2).sum(-1)
    return squares


def _logs(bounds: tuple[float, float]) -> tuple[float, float]:
    return math.log(bounds[0]), math.log(bounds[1])
