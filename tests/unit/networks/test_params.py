"""Named parameters as one flat vector and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exarl.networks import ParamLayout

SHAPES = st.dictionaries(
    st.text("abc/", min_size=1, max_size=4),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    max_size=6,
)


def filled(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@given(SHAPES)
def test_round_trip(shapes: dict[str, tuple[int, ...]]) -> None:
    params = filled(shapes)
    layout = ParamLayout.of(params)
    flat = layout.pack(params)
    assert flat.dtype == np.float32
    assert flat.shape == (layout.size,) == (sum(a.size for a in params.values()),)
    back = layout.unpack(flat)
    assert list(back) == list(params)
    for name, array in params.items():
        np.testing.assert_array_equal(back[name], array)
    np.testing.assert_array_equal(layout.pack(back), flat)


def test_the_order_is_that_of_the_names_given() -> None:
    flat = ParamLayout((("b", (2,)), ("a", ()))).pack({"a": 7, "b": [1, 2]})
    np.testing.assert_array_equal(flat, [1, 2, 7])


def test_unpacked_arrays_are_views_and_packed_ones_are_not() -> None:
    params = filled({"w": (2, 3), "b": (3,)})
    layout = ParamLayout.of(params)
    flat = layout.pack(params)
    assert not any(np.shares_memory(flat, array) for array in params.values())
    views = layout.unpack(flat)
    assert all(np.shares_memory(flat, view) for view in views.values())
    flat[:] = np.arange(9)
    np.testing.assert_array_equal(views["w"], [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(views["b"], [6, 7, 8])


@pytest.mark.parametrize("shape", [(8,), (10,), (0,), (3, 3), ()])
def test_a_vector_of_the_wrong_size_is_refused(shape: tuple[int, ...]) -> None:
    layout = ParamLayout.of(filled({"w": (2, 3), "b": (3,)}))
    with pytest.raises(ValueError, match="expected 9 weights"):
        layout.unpack(np.zeros(shape, np.float32))


def test_arrays_of_another_shape_cannot_be_packed() -> None:
    layout = ParamLayout.of(filled({"w": (2, 3)}))
    with pytest.raises(ValueError):
        layout.pack({"w": np.zeros((2, 4))})
    with pytest.raises(KeyError):
        layout.pack({"v": np.zeros((2, 3))})
