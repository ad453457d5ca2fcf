"""Parts of networks: activations, initial values, flattened inputs, and networks without memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Literal, TypeAlias

import numpy as np

from exarl.errors import ConfigError
from exarl.export.policy import Activation, Layer, LayerNorm
from exarl.types import Array, ArraySpec, Namespace, Params


def relu(xp: Namespace, x: Array) -> Array:
    return xp.maximum(x, 0)


def tanh(xp: Namespace, x: Array) -> Array:
    return xp.tanh(x)


def sigmoid(xp: Namespace, x: Array) -> Array:
    return 0.5 * (1 + xp.tanh(0.5 * x))  # 1 / (1 + exp(-x)), without overflow


def silu(xp: Namespace, x: Array) -> Array:
    return x * sigmoid(xp, x)


ActivationFunction: TypeAlias = Callable[[Namespace, Array], Array]
ACTIVATIONS: dict[str, ActivationFunction] = {"relu": relu, "tanh": tanh, "silu": silu}

EPSILON = 1e-5
"""What layer normalisation adds to the variance."""


def layer_norm(xp: Namespace, x: Array) -> Array:
    """[..., features] with mean 0 and variance 1 over the features; no scale or offset is learned.

    The statistics are those of float32 (or more) also where ``x`` is narrower.
    """
    if x.dtype.itemsize < 4:
        return layer_norm(xp, x.astype(np.float32)).astype(x.dtype)
    centred = x - _mean(xp, x)
    with np.errstate(over="ignore"):  # of a network that has diverged, which is told elsewhere
        squares = centred * centred
    return centred / xp.sqrt(_mean(xp, squares) + EPSILON)


def _mean(xp: Namespace, x: Array) -> Array:
    """The mean over the last axis, which is kept.

    In NumPy as a product: for the few rows of acting, x.mean() takes several times as long. Not so in
    JAX, where a device may round the factors of a product.
    """
    if xp is np:
        return x.dot(_shares(x.shape[-1], x.dtype))[..., None]
    return x.mean(-1, keepdims=True)


@cache
def _shares(size: int, dtype: np.dtype) -> np.ndarray:
    shares = np.full(size, 1 / size, dtype)
    shares.flags.writeable = False
    return shares


def hidden_function(activation: str, normalised: bool) -> ActivationFunction:
    """What a hidden layer does to its pre-activations [..., features]."""
    function = ACTIVATIONS[activation]
    return partial(_after_layer_norm, function) if normalised else function


def _after_layer_norm(function: ActivationFunction, xp: Namespace, x: Array) -> Array:
    return function(xp, layer_norm(xp, x))


def exported_hidden(
    activation: Literal["relu", "tanh", "silu"], normalised: bool, features: int
) -> tuple[Layer, ...]:
    """``hidden_function`` as layers for other programs."""
    norm = (LayerNorm(features, EPSILON),) if normalised else ()
    return (*norm, Activation(activation))


def check_normalised(key: str, sizes: Sequence[int]) -> None:
    """ConfigError when a layer to be normalised has one feature, which would always be 0."""
    if 1 in sizes:
        raise ConfigError(
            f"layer_norm makes a layer of one unit always 0; {key} is {list(sizes)}: take at least 2"
            " or leave layer_norm off"
        )


def flat(xp: Namespace, observations: Array, extra: Array | None, dtype: np.dtype) -> Array:
    """[N, ...] and [N, extra] side by side as [N, inputs], in the dtype of the parameters."""
    x = observations if observations.ndim == 2 else observations.reshape(len(observations), -1)
    if x.dtype != dtype:
        x = x.astype(dtype)
    return x if extra is None else xp.concatenate([x, extra.astype(dtype)], axis=1)


def uniform(rng: np.random.Generator, fan_in: int, units: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights [fan_in, units] and biases [units], uniform in +-1/sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in)
    w = rng.uniform(-bound, bound, (fan_in, units)).astype(np.float32)
    return w, rng.uniform(-bound, bound, (units,)).astype(np.float32)


def orthogonal(
    rng: np.random.Generator, fan_in: int, units: int, gain: float
) -> tuple[np.ndarray, np.ndarray]:
    """Weights [fan_in, units], orthogonal along the shorter side and times ``gain``; biases 0."""
    q, r = np.linalg.qr(rng.normal(size=(max(fan_in, units), min(fan_in, units))))
    q *= np.sign(np.diag(r))  # makes the draw uniform over all such matrices
    w = gain * (q if fan_in >= units else q.T)
    return np.ascontiguousarray(w, np.float32), np.zeros(units, np.float32)


class FeedForward:
    """A network without memory: ``step`` is ``apply``."""

    @property
    def memory(self) -> Mapping[str, ArraySpec]:
        """Nothing: the network has no memory."""
        return {}

    def apply(
        self, xp: Namespace, params: Params, observations: Array, extra: Array | None = None
    ) -> Array:
        """[N, *observation] (and [N, extra]) -> [N, outputs]."""
        raise NotImplementedError

    def step(
        self,
        xp: Namespace,
        params: Params,
        observations: Array,
        memory: Params,
        extra: Array | None = None,
    ) -> tuple[Array, Params]:
        """``apply``, and the memory unchanged."""
        return self.apply(xp, params, observations, extra), memory
