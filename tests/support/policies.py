"""Policies of every kind, with random weights, for tests of what is exported."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from exarl.export.policy import (
    Activation,
    Affine,
    ArgMax,
    ArgMaxEach,
    Choose,
    ChooseEach,
    Convolution,
    Function,
    Layer,
    LayerNorm,
    Lstm,
    Mask,
    Mixed,
    Normalise,
    Pick,
    Policy,
    Round,
    Scale,
    Squash,
    ToBox,
)


def array(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Weights that keep values near one."""
    fan_in = int(np.prod(shape[:-1])) if len(shape) > 1 else 1
    return (rng.normal(size=shape) / np.sqrt(fan_in)).astype(np.float32)


def dense(rng: np.random.Generator, *sizes: int, function: Function = "relu") -> list[Layer]:
    """Affine layers with a function between them."""
    layers: list[Layer] = []
    for n_in, n_out in pairwise(sizes):
        layers += [Affine(array(rng, n_in, n_out), array(rng, n_out)), Activation(function)]
    return layers[:-1]


def normalise(rng: np.random.Generator, size: int) -> Normalise:
    return Normalise(rng.normal(size=size), rng.uniform(0.5, 2, size), 1.5)  # some are cut


def box(size: int) -> ToBox:
    low = -np.arange(1.0, size + 1)
    return ToBox(low, low + 3.7)


def discrete() -> Policy:
    rng = np.random.default_rng(1)
    return Policy((normalise(rng, 6), *dense(rng, 6, 64, 32, 4), ArgMax()), 6, 1)


def binned() -> Policy:
    """Chooses among twelve actions of two numbers each."""
    rng = np.random.default_rng(7)
    return Policy((*dense(rng, 6, 32, 12), ArgMax(), Choose(array(rng, 12, 2))), 6, 2)


def continuous() -> Policy:
    rng = np.random.default_rng(2)
    layers = dense(rng, 5, 48, 48, 3, function="silu")
    return Policy((normalise(rng, 5), *layers, Squash(), box(3)), 5, 3)


def unsquashed() -> Policy:
    """Leaves [-1, 1], so that the box has something to cut."""
    rng = np.random.default_rng(3)
    return Policy((*dense(rng, 5, 32, 2, function="tanh"), Scale(2.0), box(2)), 5, 2)


def whole() -> Policy:
    """Its actions are whole numbers."""
    rng = np.random.default_rng(8)
    high = np.array([9.0, 200.0])
    return Policy((*dense(rng, 5, 32, 2), Squash(), ToBox(-high, high), Round()), 5, 2)


def pictures() -> Policy:
    """Strides and kernels that do not divide the picture, which is no square."""
    rng = np.random.default_rng(4)
    first = Convolution(array(rng, 4, 3, 2, 8), array(rng, 8), 2, 15, 12)  # -> 6 x 5
    second = Convolution(array(rng, 3, 2, 8, 5), array(rng, 5), 1, 6, 5)  # -> 4 x 4
    layers = (Scale(1 / 255), first, Activation("relu"), second, Activation("relu"))
    return Policy((*layers, *dense(rng, 80, 16, 4)), 15 * 12 * 2, 4)


def normed() -> Policy:
    rng = np.random.default_rng(8)
    affine, function, last = dense(rng, 6, 48, 4)
    return Policy((affine, LayerNorm(48, 1e-5), function, last, ArgMax()), 6, 1)


def normed_pictures() -> Policy:
    """Normalised over the channels of each position, then over all units of a dense layer."""
    rng = np.random.default_rng(10)
    found = Convolution(array(rng, 4, 3, 2, 8), array(rng, 8), 2, 15, 12)  # -> 6 x 5
    layers = (Scale(1 / 255), found, LayerNorm(8, 1e-5), Activation("silu"))
    affine, function, last = dense(rng, 240, 16, 4)
    return Policy((*layers, affine, LayerNorm(16, 1e-5), function, last), 15 * 12 * 2, 4)


def recurrent() -> Policy:
    """Two cells, one on top of the other."""
    rng = np.random.default_rng(5)
    cells = [Lstm(array(rng, n + 12, 48), array(rng, 48), 12) for n in (16, 12)]
    layers = (*dense(rng, 3, 16), *cells, *dense(rng, 12, 2), Squash(), box(2))
    return Policy((normalise(rng, 3), *layers), 3, 2)


def factored() -> Policy:
    """Sees five numbers of ten, and chooses three times among what the last seven of them allow."""
    rng = np.random.default_rng(11)
    places, counts = np.array([0, 2, 3, 4, 9]), np.array([2, 4, 1])
    values = rng.normal(size=(3, 4))
    layers = (Pick(places), *dense(rng, 5, 24, 7), Mask(3, 10), ArgMaxEach(counts))
    return Policy((*layers, ChooseEach(values)), 10, 3)


def mixed() -> Policy:
    """Three numbers, one of which has no bounds and one of which is whole, and two choices, of which
    the second observation forbids some."""
    rng = np.random.default_rng(11)
    largest = float(np.finfo(np.float32).max)
    end = Mixed(
        shift=np.array([0.5, 0.0, 4.0]),
        scale=np.array([1.5, 1.0, 4.0]),
        low=np.array([-0.2, -largest, 0.0]),
        high=np.array([1.2, largest, 8.0]),
        whole=np.array([0.0, 0.0, 1.0]),
        counts=np.array([2, 3]),
        first=np.array([0.0, -1.0]),
    )
    return Policy((*dense(rng, 7, 32, 8), Mask(2, 7), end), 7, 5)


POLICIES = {
    policy.__name__: policy
    for policy in (
        discrete,
        binned,
        continuous,
        unsquashed,
        whole,
        pictures,
        normed,
        normed_pictures,
        recurrent,
        factored,
        mixed,
    )
}


def observations(policy: Policy, count: int) -> np.ndarray:
    """What ``policy`` might see: bytes of a picture, or numbers near one."""
    rng = np.random.default_rng(9)
    if any(isinstance(layer, Convolution) for layer in policy.layers):
        return rng.integers(0, 256, (count, policy.inputs)).astype(np.float32)
    return rng.normal(size=(count, policy.inputs)).astype(np.float32)
