"""The sum tree against a plain cumulative sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exarl.replay import sumtree
from exarl.replay.sumtree import SumTree

WEIGHTS = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))
WRITES = st.lists(st.tuples(st.integers(0, 69), WEIGHTS), min_size=1, max_size=100)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three levels over seventy items."""
    monkeypatch.setattr(sumtree, "TOP", 5)
    monkeypatch.setattr(sumtree, "FAN_OUT", 4)


def model_of(writes: list[tuple[int, float]]) -> np.ndarray:
    model = np.zeros(70)
    for index, value in writes:
        model[index] = value
    return model


def filled(writes: list[tuple[int, float]], batch: int) -> SumTree:
    tree = SumTree(70)
    for start in range(0, len(writes), batch):
        indices, values = zip(*writes[start : start + batch], strict=True)
        tree.set(np.array(indices), np.array(values))
    return tree


@pytest.mark.usefixtures("small")
@given(WRITES, st.integers(1, 30), st.integers(0, 2**32))
@settings(deadline=None)
def test_finds_what_a_cumulative_sum_finds(
    writes: list[tuple[int, float]], batch: int, seed: int
) -> None:
    tree, model = filled(writes, batch), model_of(writes)
    sums = model.cumsum()
    np.testing.assert_allclose(tree.total, sums[-1])
    np.testing.assert_array_equal(tree.get(np.arange(70)), model)
    if not sums[-1]:
        return
    masses = np.random.default_rng(seed).random(50) * sums[-1]
    # Only where two sums that rounding parts differently cannot be told apart may they differ.
    clear = np.abs(masses[:, None] - sums).min(1) > 1e-9 * sums[-1]
    found = tree.find(masses)
    np.testing.assert_array_equal(found[clear], sums.searchsorted(masses, "right")[clear])
    assert (model[found] > 0).all()


@pytest.mark.usefixtures("small")
@given(WRITES)
@settings(deadline=None)
def test_the_edges_find_an_item_with_a_weight(writes: list[tuple[int, float]]) -> None:
    tree, model = filled(writes, 100), model_of(writes)
    if not model.any():
        return
    edges = np.array([0.0, *model.cumsum(), tree.total, 2 * tree.total])
    found = tree.find(edges)
    assert (model[found] > 0).all()
    held = np.flatnonzero(model)
    assert (found[0], found[-1]) == (held[0], held[-1])


@pytest.mark.parametrize("capacity", [1, 15, 4096, 4097, 100_000])
def test_every_capacity_reaches_its_last_item(capacity: int) -> None:
    tree = SumTree(capacity)
    tree.set(np.arange(capacity), np.ones(capacity))
    assert tree.total == capacity
    items = np.array([0, capacity // 2, capacity - 1])
    np.testing.assert_array_equal(tree.find(items + 0.5), items)


def test_no_rounding_accumulates() -> None:
    """A huge weight that came and went leaves no trace."""
    tree = SumTree(10_000)
    tree.set(np.arange(10_000), np.full(10_000, 0.1))
    before = tree.total
    for value in (1e18, 0.1):
        tree.set(np.array([77]), np.array([value]))
    assert tree.total == before
