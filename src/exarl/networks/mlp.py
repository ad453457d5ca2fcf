"""The multilayer perceptron."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Literal

import numpy as np

from exarl.config import param
from exarl.errors import ConfigError
from exarl.export.policy import Activation, Affine, Layer
from exarl.networks import batch_norm
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
    batch_norm: Literal["none", "before", "after"] = param(
        "none",
        "normalise inputs and hidden layers by the statistics of batches, and hidden layers before or"
        " after their activation; for agents that keep running moments (CrossQ, XQC)",
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
            if self.normalises_batches:
                raise ConfigError("layer_norm and batch_norm exclude each other: choose one")
        if self.config.dropout and self.normalises_batches:
            raise ConfigError("dropout and batch_norm exclude each other: choose one")

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
        """``{layer}/w`` [fan-in, units] and ``{layer}/b`` [units]; with ``batch_norm`` its own, and
        no ``b`` where it would be taken off again at once."""
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
        if self.normalises_batches:
            params |= batch_norm.first(sizes[:-1])
        if self.config.batch_norm == "before":
            for layer in range(len(self.config.hidden)):
                del params[f"{layer}/b"]
        return params

    def apply(
        self, xp: Namespace, params: Params, observations: Array, extra: Array | None = None
    ) -> Array:
        function, hidden, (w_out, b_out) = self._layers
        x = flat(xp, observations, extra, params[w_out].dtype)
        if self.normalises_batches:
            return self._through(xp, params, x, partial(batch_norm.by_running, xp, params))
        for w, b, kept in hidden:
            x = x @ params[w] + params[b]
            if kept in params:
                x = x * params[kept]
            x = function(xp, x)
        return x @ params[w_out] + params[b_out]

    @property
    def normalises_batches(self) -> bool:
        """Whether ``learn`` differs from ``apply``."""
        return self.config.batch_norm != "none"

    def learn(
        self,
        xp: Namespace,
        params: Params,
        observations: Array,
        extra: Array | None = None,
        renormalise: bool | Array = False,
    ) -> tuple[Array, dict[str, Array]]:
        """The outputs for a batch by its own statistics, and the running moments after it."""
        running: dict[str, Array] = {}

        def norm(place: int, x: Array) -> Array:
            x, after = batch_norm.by_batch(xp, params, place, x, renormalise)
            running.update(after)
            return x

        x = flat(xp, observations, extra, params[self._layers[2][0]].dtype)
        return self._through(xp, params, x, norm), running

    def _through(
        self, xp: Namespace, params: Params, x: Array, norm: Callable[[int, Array], Array]
    ) -> Array:
        """The outputs for inputs [N, features], where ``norm`` normalises at each place."""
        function, hidden, (w_out, b_out) = self._layers
        before, x = self.config.batch_norm == "before", norm(0, x)
        for place, (w, b, _) in enumerate(hidden, 1):
            if before:
                x = function(xp, norm(place, x @ params[w]))
            else:
                x = norm(place, function(xp, x @ params[w] + params[b]))
        return x @ params[w_out] + params[b_out]

    def exported(self, params: Arrays) -> tuple[Layer, ...]:
        """What ``apply`` does, as layers for other programs."""
        if self.normalises_batches:
            return self._folded(params)
        _, hidden, (w_out, b_out) = self._layers
        cfg = self.config
        layers: list[Layer] = []
        for units, (w, b, _) in zip(cfg.hidden, hidden, strict=True):
            layers.append(Affine(params[w], params[b]))
            layers += exported_hidden(cfg.activation, cfg.layer_norm, units)
        return (*layers, Affine(params[w_out], params[b_out]))

    def _folded(self, params: Arrays) -> tuple[Layer, ...]:
        """The layers, whose constants do what the running moments do."""
        _, hidden, (w_out, b_out) = self._layers
        before = self.config.batch_norm == "before"
        layers: list[Layer] = []
        factor, offset = _fold(params, 0)  # of what comes into a layer
        for place, (w, b, _) in enumerate(hidden, 1):
            weight, bias = factor[:, None] * params[w], offset @ params[w]
            factor, offset = _fold(params, place)
            if before:
                weight, bias = weight * factor, bias * factor + offset
                factor, offset = np.ones_like(factor), np.zeros_like(offset)
            else:
                bias = bias + params[b]
            layers += [Affine(weight, bias), Activation(self.config.activation)]
        weight, bias = factor[:, None] * params[w_out], offset @ params[w_out] + params[b_out]
        return (*layers, Affine(weight, bias))

    @cached_property
    def _layers(self) -> tuple[ActivationFunction, list[tuple[str, str, str]], tuple[str, str]]:
        """The hidden layers' function, and the names of their parameters (with their masks) and of the
        last one's."""
        count = len(self.config.hidden)
        hidden = [(f"{n}/w", f"{n}/b", f"{n}/kept") for n in range(count)]
        function = hidden_function(self.config.activation, self.config.layer_norm)
        return function, hidden, (f"{count}/w", f"{count}/b")


def _fold(params: Arrays, place: int) -> tuple[np.ndarray, np.ndarray]:
    factor, offset = batch_norm.as_affine(np, params, place)
    return np.asarray(factor), np.asarray(offset)
