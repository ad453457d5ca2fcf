"""Activations, initial values and flat inputs, against their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from exarl.networks.layers import ACTIVATIONS, flat, orthogonal, sigmoid, uniform

X = np.array([-800.0, -3.0, -0.5, 0.0, 0.25, 2.0, 800.0])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("relu", X * (X > 0)), ("tanh", np.tanh(X)), ("silu", X * special.expit(X))],
)
def test_activations(name: str, expected: np.ndarray) -> None:
    np.testing.assert_allclose(ACTIVATIONS[name](np, X), expected, rtol=1e-9, atol=1e-12)


def test_the_sigmoid_does_not_overflow() -> None:
    np.testing.assert_allclose(sigmoid(np, X), special.expit(X), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("extra", [None, np.arange(6).reshape(2, 3)])
@pytest.mark.parametrize("shape", [(2, 4), (2, 2, 2), (2,)])
def test_inputs_stand_side_by_side_in_the_dtype_of_the_parameters(
    shape: tuple[int, ...], extra: Any
) -> None:
    seen = np.arange(np.prod(shape)).reshape(shape).astype(np.uint8)
    found = flat(np, seen, extra, np.dtype(np.float32))
    parts = [seen.reshape(2, -1)] + ([] if extra is None else [extra])
    np.testing.assert_array_equal(found, np.concatenate(parts, 1))
    assert found.dtype == np.float32


def test_uniform_weights_fill_their_bounds() -> None:
    w, b = uniform(np.random.default_rng(0), 16, 400)
    assert w.shape == (16, 400)
    assert b.shape == (400,)
    assert w.dtype == b.dtype == np.float32
    for values in (w.ravel(), b):
        assert np.abs(values).max() <= 0.25
        assert stats.kstest(values, stats.uniform(-0.25, 0.5).cdf).pvalue > 0.01


@pytest.mark.parametrize(("fan_in", "units"), [(7, 3), (3, 7), (5, 5)])
def test_orthogonal_weights_are_so_along_the_shorter_side(fan_in: int, units: int) -> None:
    w, b = orthogonal(np.random.default_rng(1), fan_in, units, gain=2.0)
    assert w.shape == (fan_in, units)
    assert w.dtype == np.float32
    product = w.T @ w if fan_in >= units else w @ w.T
    np.testing.assert_allclose(product, 4.0 * np.eye(min(fan_in, units)), atol=1e-5)
    assert not b.any()


def test_orthogonal_matrices_are_drawn_without_a_preference() -> None:
    """The first entry has either sign equally often, which plain QR does not give."""
    rng = np.random.default_rng(2)
    signs = [orthogonal(rng, 3, 3, 1.0)[0][0, 0] > 0 for _ in range(400)]
    assert 150 < sum(signs) < 250
