"""Parts of networks: activations, initial values, flattened inputs, and networks without memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

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
