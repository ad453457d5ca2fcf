"""Searches find the top of a hill, and depend on what was tried and the seed only."""

from __future__ import annotations

import numpy as np
import pytest

from exarl.learning.search import SEARCHES, Search, Tried, search_by

TOP = np.array([0.7, -0.4, 0.2])


def climbed(search: Search, generations: int, rng: np.random.Generator) -> list[Tried]:
    """Try points of the proposals, chosen by chance as episodes choose them."""
    tried = []
    for _ in range(generations):
        pool = search.propose()
        points = pool[rng.integers(len(pool), size=search.generation)].astype(np.float32)
        tried.append(Tried(points, -((points - TOP[: points.shape[1]]) ** 2).sum(1).astype(float)))
        search.tell(tried[-1])
    return tried


@pytest.mark.parametrize(
    ("method", "generations", "near"), [("cma-es", 40, 0.02), ("bayes", 30, 0.5)]
)
def test_the_best_point_is_near_the_top(method: str, generations: int, near: float) -> None:
    for seed in (1, 2):
        search = search_by(method, 3, 0.5, seed, None, [])
        climbed(search, generations, np.random.default_rng(seed))
        assert np.linalg.norm(search.best - TOP) < near


@pytest.mark.parametrize("method", list(SEARCHES))
def test_one_number_can_be_searched(method: str) -> None:
    search = search_by(method, 1, 0.5, 0, 4, [])
    assert search.propose().shape[1] == 1
    climbed(search, 3, np.random.default_rng(0))
    assert search.best.shape == (1,)


@pytest.mark.parametrize("method", list(SEARCHES))
def test_a_search_goes_on_from_what_was_tried(method: str) -> None:
    first = search_by(method, 2, 0.5, 3, 5, [])
    tried = climbed(first, 4, np.random.default_rng(0))
    again = search_by(method, 2, 0.5, 3, 5, tried)
    np.testing.assert_array_equal(again.propose(), first.propose())
    np.testing.assert_array_equal(again.best, first.best)
    assert not np.array_equal(search_by(method, 2, 0.5, 4, 5, tried).propose(), first.propose())
