"""Orders without sorting: each is a permutation, and all are about equally likely."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from exarl.learning.shuffle import ROUNDS, scattered, table_for

PARTS = 16


def order_of(count: int, rng: np.random.Generator) -> np.ndarray:
    """A random order of ``count`` places."""
    keys, table = rng.integers(0, 2**32, ROUNDS, dtype=np.uint32), table_for(count)
    order = scattered(np, np.arange(count, dtype=np.uint32), keys, table)
    while (order >= count).any():
        order = np.where(order < count, order, scattered(np, order, keys, table))
    return order.astype(int)


@pytest.mark.parametrize("seed", range(3))
def test_every_cell_of_a_table_goes_to_one_of_its_own(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for rows, columns in [(1, 1), (1, 7), (2, 2), (5, 3), (64, 64), (31, 130), (1, 1000)]:
        keys = rng.integers(0, 2**32, ROUNDS, dtype=np.uint32)
        cells = np.arange(rows * columns, dtype=np.uint32)
        assert sorted(scattered(np, cells, keys, (rows, columns))) == cells.tolist()


def test_orders_of_any_length_are_permutations() -> None:
    rng = np.random.default_rng(0)
    for count in [*range(1, 200), 1023, 1024, 1025, 4099, 65_537]:
        assert np.array_equal(np.sort(order_of(count, rng)), np.arange(count))


def test_a_table_has_few_cells_too_many() -> None:
    for count in [*range(1, 3000), 2**20, 2**20 + 7, 10**7 + 19, 2**31 - 1]:
        rows, columns = table_for(count)
        assert 0 <= rows * columns - count <= max(3, count // 100)
        assert columns <= 20 * rows or count < 20


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [1024, 1531])
def test_every_place_goes_anywhere_equally_often(count: int, seed: int) -> None:
    rng, found, orders = np.random.default_rng(seed), np.zeros((count, PARTS)), 640
    for _ in range(orders):
        np.add.at(found, (np.arange(count), order_of(count, rng) * PARTS // count), 1)
    assert abs(deviations(found, orders / PARTS)) < 6


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [1024, 1531])
def test_places_near_each_other_part_at_random(count: int, seed: int) -> None:
    """Also those of one column of the table, which move alike in the first round."""
    rng, columns, orders = np.random.default_rng(seed), table_for(count)[1], 400
    found = {apart: np.zeros(count) for apart in (1, 2, columns, 2 * columns)}
    for _ in range(orders):
        order = order_of(count, rng)
        for apart in found:
            found[apart] += np.bincount((np.roll(order, apart) - order) % count, minlength=count)
    for counts in found.values():
        assert counts[0] == 0
        # Differences of one order depend on each other a little, hence the wider bound.
        assert abs(deviations(counts[None, 1:], orders * count / (count - 1))) < 8


@pytest.mark.parametrize("seed", range(3))
def test_each_part_of_an_order_draws_from_everywhere(seed: int) -> None:
    """As minibatches do: the rows of each are spread over the block as by chance."""
    rng, count, total, orders = np.random.default_rng(seed), 4096, 0.0, 100
    for _ in range(orders):
        parts = np.arange(count) * PARTS // count
        found = np.zeros((PARTS, PARTS))
        np.add.at(found, (parts, parts[order_of(count, rng)]), 1)
        total += ((found - 16) ** 2 / 16).sum() * (count - 1) / count
    free = orders * (PARTS - 1) ** 2
    assert abs(total - free) / np.sqrt(2 * free) < 6


def test_different_keys_give_different_orders() -> None:
    rng = np.random.default_rng(0)
    orders = np.stack([order_of(1024, rng) for _ in range(300)])
    assert len(np.unique(orders, axis=0)) == 300
    # Any two orders agree at one place on average, as for random permutations.
    agree = np.mean([(a == b).sum() for a, b in pairwise(orders)])
    assert 0.6 < agree < 1.4


def deviations(found: np.ndarray, expected: float) -> float:
    """The chi-square statistic of equally likely cells, in standard deviations from its mean."""
    rows, cells = found.shape
    free = rows * (cells - 1)
    return float((((found - expected) ** 2 / expected).sum() - free) / np.sqrt(2 * free))
