"""The multilayer perceptron."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from exarl.config import param
from exarl.types import Arrays, ArraySpec


def relu(xp: Any, x: Any) -> Any:
    return xp.maximum(x, 0)


def tanh(xp: Any, x: Any) -> Any:
    return xp.tanh(x)


def silu(xp: Any, x: Any) -> Any:
    return x * (0.5 * (1 + xp.tanh(0.5 * x)))  # x * sigmoid(x), without overflow


ACTIVATIONS = {"relu": relu, "tanh": tanh, "silu": silu}


@dataclass(frozen=True)
class MLPConfig:
    """Parameters of the multilayer perceptron."""

    hidden: tuple[int, ...] = param((64, 128), "units of each hidden layer", ge=1, le=65536)
    activation: Literal["relu", "tanh", "silu"] = param("relu", "activation of the hidden layers")


@dataclass(frozen=True)
class MLP:
    """Dense layers over flattened observations; the last one is linear with ``outputs`` units."""

    Config = MLPConfig

    config: MLPConfig
    observation: ArraySpec
    outputs: int

    def init(self, rng: np.random.Generator) -> Arrays:
        """Weights and biases uniform in +-1/sqrt(fan-in)."""
        sizes = [math.prod(self.observation.shape), *self.config.hidden, self.outputs]
        params: Arrays = {}
        for layer, (fan_in, units) in enumerate(pairwise(sizes)):
            bound = 1 / math.sqrt(fan_in)
            for name, shape in (("w", (fan_in, units)), ("b", (units,))):
                params[f"{layer}/{name}"] = rng.uniform(-bound, bound, shape).astype(np.float32)
        return params

    def apply(self, xp: Any, params: Any, observations: Any) -> Any:
        """[N, *observation] -> [N, outputs]."""
        activation = ACTIVATIONS[self.config.activation]
        x = observations if observations.ndim == 2 else observations.reshape(len(observations), -1)
        if x.dtype != np.float32:
            x = x.astype(np.float32)
        *hidden, (w_out, b_out) = self._names
        for w, b in hidden:
            x = activation(xp, x @ params[w] + params[b])
        return x @ params[w_out] + params[b_out]

    @cached_property
    def _names(self) -> list[tuple[str, str]]:
        return [(f"{layer}/w", f"{layer}/b") for layer in range(len(self.config.hidden) + 1)]
