"""The multilayer perceptron."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np

from exarl.config import param
from exarl.export.policy import Affine, Layer
from exarl.networks.layers import (
    ActivationFunction,
    FeedForward,
    check_normalised,
    exported_hidden,
    flat,
    hidden_function,
    orthogonal,
    uniform,
)
from exarl.types import Array, Arrays, ArraySpec, Namespace, Params


@dataclass(frozen=True)
class MLPConfig:
    """Parameters of the multilayer perceptron."""

    hidden: tuple[int, ...] = param((64, 128), "units of each hidden layer", ge=1, le=65536)
    activation: Literal["relu", "tanh", "silu"] = param("relu", "activation of the hidden layers")
    init: Literal["uniform", "orthogonal"] = param(
        "uniform", "initial values: uniform in +-1/sqrt(fan-in), or orthogonal with gain sqrt(2)"
    )
    output_gain: float = param(1.0, "gain of the last layer when init is orthogonal", ge=0)
    layer_norm: bool = param(
        False, "normalise each hidden layer to mean 0 and variance 1 before its activation"
    )
    dropout: float = param(
        0.0, "part of each hidden layer's units that critics leave out while they learn", ge=0, lt=1
    )


@dataclass(frozen=True)
class MLP(FeedForward):
    """Dense layers over flattened observations; the last one is linear with ``outputs`` units.

    ``extra`` is the number of further inputs per observation, such as the action that a critic rates.
    """

    Config = MLPConfig

    config: MLPConfig
    observation: ArraySpec
    outputs: int
    extra: int = 0

    def __post_init__(self) -> None:
        """ConfigError when a layer is too small to be normalised."""
        if self.config.layer_norm:
            check_normalised("hidden", self.config.hidden)

    @property
    def dropout(self) -> float:
        """The part of the units that masks leave out."""
        return self.config.dropout

    @property
    def dropped(self) -> Mapping[str, int]:
        """The masks [N, units] that ``apply`` takes among its parameters, and their units."""
        layers = enumerate(self.config.hidden) if self.config.dropout else ()
        return {f"{layer}/kept": units for layer, units in layers}

    def init(self, rng: np.random.Generator) -> Arrays:
        """``{layer}/w`` [fan-in, units] and ``{layer}/b`` [units]."""
        inputs = math.prod(self.observation.shape) + self.extra
        sizes = [inputs, *self.config.hidden, self.outputs]
        gains = [math.sqrt(2)] * len(self.config.hidden) + [self.config.output_gain]
        params: Arrays = {}
        for layer, ((fan_in, units), gain) in enumerate(zip(pairwise(sizes), gains, strict=True)):
            params[f"{layer}/w"], params[f"{layer}/b"] = (
                uniform(rng, fan_in, units)
                if self.config.init == "uniform"
                else orthogonal(rng, fan_in, units, gain)
            )
        return params

    def apply(
        self, xp: Namespace, params: Params, observations: Array, extra: Array | None = None
    ) -> Array:
        function, hidden, (w_out, b_out) = self._layers
        x = flat(xp, observations, extra, params[w_out].dtype)
        for w, b, kept in hidden:
            x = x @ params[w] + params[b]
            if kept in params:
                x = x * params[kept]
            x = function(xp, x)
        return x @ params[w_out] + params[b_out]

    def exported(self, params: Arrays) -> tuple[Layer, ...]:
        """What ``apply`` does, as layers for other programs."""
        _, hidden, (w_out, b_out) = self._layers
        cfg = self.config
        layers: list[Layer] = []
        for units, (w, b, _) in zip(cfg.hidden, hidden, strict=True):
            layers.append(Affine(params[w], params[b]))
            layers += exported_hidden(cfg.activation, cfg.layer_norm, units)
        return (*layers, Affine(params[w_out], params[b_out]))

    @cached_property
    def _layers(self) -> tuple[ActivationFunction, list[tuple[str, str, str]], tuple[str, str]]:
        """The hidden layers' function, and the names of their parameters (with their masks) and of the
        last one's."""
        count = len(self.config.hidden)
        hidden = [(f"{n}/w", f"{n}/b", f"{n}/kept") for n in range(count)]
        function = hidden_function(self.config.activation, self.config.layer_norm)
        return function, hidden, (f"{count}/w", f"{count}/b")
