"""The Gaussian process, against closed forms and against random search."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.stats import norm

from exarl.sweep import gp
from exarl.sweep.space import Choices, Range, Space, random_point


def test_two_points_by_hand() -> None:
    """Values -1 and 1 at 0 and 1, of mean 0 and deviation 1 as they are; asked halfway and at 0.25."""
    process = gp.condition(
        np.array([[0.0], [1.0]]), np.array([-1.0, 1.0]), np.array([0.5]), 1.0, 0.0
    )

    def k(r: float) -> float:
        s = math.sqrt(5) * r / 0.5
        return (1 + s + s**2 / 3) * math.exp(-s)

    mean, deviation = gp.predict(process, np.array([[0.5], [0.25]]))
    covariance = np.array([[1, k(1)], [k(1), 1]])
    for place, row in ((0.5, 0), (0.25, 1)):
        between = np.array([k(place), k(1 - place)])
        solved = np.linalg.solve(covariance, between)
        assert mean[row] == pytest.approx(solved @ [-1.0, 1.0], abs=1e-12)
        assert deviation[row] == pytest.approx(math.sqrt(1 - solved @ between), abs=1e-9)
    assert mean[0] == pytest.approx(0.0, abs=1e-12)  # by symmetry


@pytest.mark.parametrize("seed", range(3))
def test_it_goes_through_the_data_and_is_unsure_elsewhere(seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs, values = rng.random((8, 3)), 40 + 5 * rng.normal(size=8)
    process = gp.condition(inputs, values, np.full(3, 0.4), noise=1e-9)
    mean, deviation = gp.predict(process, inputs)
    assert mean == pytest.approx(values, abs=1e-4)
    assert (deviation < 1e-2).all()
    far_mean, far_deviation = gp.predict(process, inputs + 50)
    assert far_mean == pytest.approx(np.full(8, values.mean()))
    assert far_deviation == pytest.approx(np.full(8, values.std()))


def test_expected_improvement_is_the_mean_of_what_is_gained() -> None:
    mean, deviation = np.array([0.0, 1.0, -2.0]), np.array([1.0, 0.5, 1.5])
    draws = mean + deviation * norm.ppf((np.arange(200_000)[:, None] + 0.5) / 200_000)
    gained = np.maximum(draws - 0.7, 0).mean(0)
    assert gp.expected_improvement(mean, deviation, 0.7) == pytest.approx(gained, rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_the_slope_of_the_likelihood(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = rng.random((9, 3)), rng.normal(size=9), np.array([0, 1, 1])
    theta = np.log([0.4, 0.9, 1.3, 0.02]) + 0.3 * rng.normal(size=4)
    off = check_grad(
        lambda t: gp._unlikely(t, *data)[0], lambda t: gp._unlikely(t, *data)[1], theta
    )
    assert off < 1e-4


def test_likelihood_finds_which_parameter_matters() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.random((40, 2))
    process = gp.fit(inputs, np.sin(6 * inputs[:, 0]), np.arange(2))
    assert process.lengths[1] > 5 * process.lengths[0]


def test_choices_have_a_column_each() -> None:
    space: Space = {"lr": Range(1e-4, 1e-2, log=True), "f": Choices(("a", "b", "c"))}
    assert gp.encode(space, {"lr": 1e-3, "f": "b"}) == pytest.approx([0.5, 0, 1, 0])
    assert gp.owners_of(space).tolist() == [0, 1, 1, 1]
    assert gp.decode(space, [0.5, 0.4]) == {"lr": pytest.approx(1e-3), "f": "b"}


def branin(point: Mapping[str, Any]) -> float:
    x, y = point["x"], point["y"]
    valley = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return -(valley**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


def bowl(point: Mapping[str, Any]) -> float:
    return -((math.log10(point["lr"]) + 3) ** 2) - (point["n"] - 20) ** 2 / 100


PLANE: Space = {"x": Range(-5, 10), "y": Range(0, 15)}
BOWL: Space = {"lr": Range(1e-5, 1e-1, log=True), "n": Range(1, 64, whole=True)}


@pytest.mark.parametrize(
    ("space", "value", "best"), [(PLANE, branin, -0.397887), (BOWL, bowl, 0.0)]
)
def test_it_beats_random_search(
    space: Space, value: Callable[[Mapping[str, Any]], float], best: float
) -> None:
    regrets = []
    for seed in range(3):
        told: list[tuple[Mapping[str, Any], float]] = []
        for n in range(20):
            rng = np.random.default_rng([seed, n])
            early = len(told) < gp.STARTUP
            point = gp.early(space, seed, n) if early else gp.suggest(space, told, [], rng)
            told.append((point, value(point)))
        drawn = [value(random_point(space, seed, n)) for n in range(20)]
        regrets.append((best - max(v for _, v in told), best - max(drawn)))
    own, drawn_regret = np.mean(regrets, axis=0)
    assert own < drawn_regret / 5


def test_pending_settings_are_not_asked_for_again() -> None:
    told = [(gp.early(PLANE, 0, n), branin(gp.early(PLANE, 0, n))) for n in range(12)]
    first = gp.suggest(PLANE, told, [], np.random.default_rng(1))
    second = gp.suggest(PLANE, told, [first], np.random.default_rng(1))
    apart = math.dist(gp.encode(PLANE, first), gp.encode(PLANE, second))
    assert apart > 0.03
    assert gp.suggest(PLANE, told, [first], np.random.default_rng(1)) == second
