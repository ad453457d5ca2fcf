"""What a policy computes, by hand and against other implementations; what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from support.policies import POLICIES, array, observations, recurrent

from exarl.export import Policy, evaluate
from exarl.export.policy import (
    Activation,
    Affine,
    ArgMax,
    Choose,
    Convolution,
    Layer,
    LayerNorm,
    Lstm,
    Normalise,
    Round,
    Scale,
    Squash,
    ToBox,
)


def result(layer: Layer, x: list[float], outputs: int | None = None) -> list[float]:
    policy = Policy((layer,), len(x), outputs or len(x))
    values: list[float] = evaluate(policy, np.array([x]))[0].tolist()
    return values


def test_every_layer_by_hand() -> None:
    assert result(Affine(np.array([[1.0, 2], [3, 4]]), np.array([10.0, 20])), [1, 2]) == [17, 30]
    assert result(Activation("relu"), [-1, 0, 2]) == [0, 0, 2]
    assert result(Activation("tanh"), [0.5]) == pytest.approx([np.tanh(0.5)])
    assert result(Activation("silu"), [2, -1000]) == pytest.approx([2 / (1 + np.exp(-2)), 0])
    assert result(Squash(), [0.5]) == pytest.approx([np.tanh(0.5)])
    assert result(Normalise(np.array([1.0, 1]), np.array([2.0, 0.1]), 3.0), [2, 2]) == [0.5, 3]
    assert result(LayerNorm(2, 1e-12), [1, 3, 5, 4]) == pytest.approx([-1, 1, 1, -1])
    assert result(LayerNorm(2, 3.0), [1, 3]) == pytest.approx([-0.5, 0.5])
    assert result(Scale(0.25), [8]) == [2]
    assert result(ArgMax(), [1, 3, 3, 2], 1) == [1]
    assert result(Choose(np.array([[0.0, 1], [2, 3]])), [1], 2) == [2, 3]
    assert result(ToBox(np.array([-2.0, 0, 0]), np.array([2.0, 1, 1])), [0.5, -1, 7]) == [1, 0, 1]
    assert result(Round(), [-0.6, 1.5, 2.5, 2.51]) == [-1, 2, 2, 3]


def test_a_convolution_against_its_definition() -> None:
    rng = np.random.default_rng(0)
    layer = Convolution(array(rng, 3, 2, 4, 5), array(rng, 5), 2, 8, 7)
    picture = rng.normal(size=(8, 7, 4))
    expected = np.zeros((3, 3, 5))
    for row in range(3):
        for column in range(3):
            window = picture[2 * row : 2 * row + 3, 2 * column : 2 * column + 2]
            expected[row, column] = np.einsum("ijc,ijco->o", window, layer.weight) + layer.bias
    found = evaluate(Policy((layer,), 224, 45), picture.reshape(1, -1))
    np.testing.assert_allclose(found[0], expected.ravel(), atol=1e-5)


def test_a_recurrent_policy_remembers_and_begins_anew_at_each_call() -> None:
    policy = recurrent()
    seen = observations(policy, 20)
    whole = evaluate(policy, seen)
    np.testing.assert_array_equal(evaluate(policy, seen[:5]), whole[:5])
    assert np.abs(evaluate(policy, seen[5:]) - whole[5:]).max() > 1e-3


def test_an_lstm_step_by_hand() -> None:
    """Weights of zero leave the biases: gates i, f, g, o of 1, 2, 3 and 4."""
    policy = Policy((Lstm(np.zeros((2, 4)), np.array([1.0, 2, 3, 4]), 1),), 1, 1)

    def gate(x: float) -> float:
        return float(1 / (1 + np.exp(-x)))

    first = gate(1) * np.tanh(3)
    second = gate(2) * first + gate(1) * np.tanh(3)
    expected = [[gate(4) * np.tanh(first)], [gate(4) * np.tanh(second)]]
    np.testing.assert_allclose(evaluate(policy, np.zeros((2, 1))), expected, rtol=1e-6)


@pytest.mark.parametrize("name", POLICIES)
def test_actions_are_float32_of_the_promised_size(name: str) -> None:
    policy = POLICIES[name]()
    found = evaluate(policy, observations(policy, 7))
    assert (found.shape, found.dtype) == ((7, policy.outputs), np.float32)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ((), "at least one"),
        ((Affine(np.zeros((4, 2)), np.zeros(2)),), "layer 0 .Affine.: takes 4"),
        ((Affine(np.zeros((3, 2)), np.zeros(3)),), "bias has shape"),
        ((Affine(np.zeros((3, 1)), np.zeros(1)),), "give 1 outputs, not 2"),
        ((Affine(np.full((3, 2), np.nan), np.zeros(2)),), "weight is not finite"),
        ((Scale(1.0), ToBox(np.zeros(2), np.ones(2))), "layer 1 .ToBox.: low has shape"),
        ((ToBox(np.zeros(3), np.full(3, np.inf)),), "high is not finite"),
        ((Normalise(np.zeros(3), np.zeros(3), 5.0),), "std is not positive"),
        ((LayerNorm(2, 1e-5),), "3 values are no groups of 2"),
        ((LayerNorm(0, 1e-5),), "no groups of 0"),
        ((LayerNorm(3, 0.0),), "epsilon is not positive"),
        ((Activation("gelu"),), "no function 'gelu'"),  # type: ignore[arg-type]
        ((Convolution(np.zeros((2, 2, 1, 2)), np.zeros(2), 1, 2, 2),), "takes 4"),
        ((Convolution(np.zeros((4, 1, 1, 2)), np.zeros(2), 1, 3, 1),), "gives 0"),
        ((Lstm(np.zeros((5, 4)), np.zeros(8), 2),), "weight has shape"),
    ],
)
def test_what_does_not_fit_is_refused(layers: tuple[Layer, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Policy(layers, 3, 2)


def test_observations_of_another_size_are_refused() -> None:
    policy = recurrent()
    for shape in ((3,), (2, 4), (1, 1, 3)):
        with pytest.raises(ValueError, match="observations are"):
            evaluate(policy, np.zeros(shape))
