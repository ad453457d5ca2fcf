"""The long short-term memory network (Hochreiter and Schmidhuber, Neural Computation 9, 1997)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np

from exarl.config import param
from exarl.export.policy import Activation, Affine, Layer, Lstm
from exarl.networks.layers import ACTIVATIONS, flat, sigmoid, uniform
from exarl.types import Array, Arrays, ArraySpec, Namespace, Params


@dataclass(frozen=True)
class LSTMConfig:
    """Parameters of the long short-term memory network."""

    hidden: tuple[int, ...] = param(
        (64,), "units of each dense layer before the cell; [] for none", ge=1, le=65536
    )
    units: int = param(64, "units of the memory cell", ge=1, le=65536)
    activation: Literal["relu", "tanh", "silu"] = param("relu", "activation of the dense layers")


@dataclass(frozen=True)
class LSTM:
    """Dense layers over flattened observations, one memory cell, and a linear layer of ``outputs``.

    ``extra`` is the number of further inputs per observation, such as the action that a critic rates.
    An episode begins with a memory of zeros.
    """

    Config = LSTMConfig

    config: LSTMConfig
    observation: ArraySpec
    outputs: int
    extra: int = 0

    @property
    def memory(self) -> Mapping[str, ArraySpec]:
        """The cell's output (h) and its state (c)."""
        return {name: ArraySpec((self.config.units,), "float32") for name in ("h", "c")}

    def init(self, rng: np.random.Generator) -> Arrays:
        """Uniform in +-1/sqrt(fan-in); the cell's biases are 0, those of its forget gate 1."""
        units = self.config.units
        inputs = math.prod(self.observation.shape) + self.extra
        *dense, seen = pairwise([inputs, *self.config.hidden, 4 * units])
        shapes = {str(n): shape for n, shape in enumerate(dense)}
        shapes |= {"cell": (seen[0] + units, 4 * units), "out": (units, self.outputs)}
        params: Arrays = {}
        for name, (fan_in, width) in shapes.items():
            params[f"{name}/w"], params[f"{name}/b"] = uniform(rng, fan_in, width)
        params["cell/b"] = np.array([0, 1, 0, 0], np.float32).repeat(units)  # remember at first
        return params

    def step(
        self,
        xp: Namespace,
        params: Params,
        observations: Array,
        memory: Params,
        extra: Array | None = None,
    ) -> tuple[Array, dict[str, Array]]:
        """[N, *observation] (and [N, extra]), memory [N, units] -> [N, outputs], next memory."""
        activation = ACTIVATIONS[self.config.activation]
        x = flat(xp, observations, extra, params["out/w"].dtype)
        for w, b in self._dense:
            x = activation(xp, x @ params[w] + params[b])
        x = xp.concatenate([x, memory["h"]], axis=1) @ params["cell/w"] + params["cell/b"]
        i, f, g, o = self._gates
        gates = sigmoid(xp, x)  # also of g, unused there: fewer calls are faster in NumPy
        c = gates[:, f] * memory["c"] + gates[:, i] * xp.tanh(x[:, g])
        h = gates[:, o] * xp.tanh(c)
        return h @ params["out/w"] + params["out/b"], {"h": h, "c": c}

    def apply(
        self, xp: Namespace, params: Params, observations: Array, extra: Array | None = None
    ) -> Array:
        raise TypeError("LSTM has a memory: an agent must use step(), not apply()")

    def exported(self, params: Arrays) -> tuple[Layer, ...]:
        """What ``step`` does, as layers for other programs."""
        active = Activation(self.config.activation)
        dense = [layer for w, b in self._dense for layer in (Affine(params[w], params[b]), active)]
        cell = Lstm(params["cell/w"], params["cell/b"], self.config.units)
        return (*dense, cell, Affine(params["out/w"], params["out/b"]))

    @cached_property
    def _dense(self) -> list[tuple[str, str]]:
        return [(f"{n}/w", f"{n}/b") for n in range(len(self.config.hidden))]

    @cached_property
    def _gates(self) -> list[slice]:
        """The columns of the input, forget, candidate and output gates."""
        units = self.config.units
        return [slice(k * units, (k + 1) * units) for k in range(4)]
