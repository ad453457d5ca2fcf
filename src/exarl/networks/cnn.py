"""The convolutional network for images (layers as in Mnih et al., Nature 518, 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from exarl.config import param
from exarl.errors import ConfigError
from exarl.export.policy import Convolution, Layer, Scale
from exarl.networks.layers import (
    FeedForward,
    check_normalised,
    exported_hidden,
    hidden_function,
    uniform,
)
from exarl.networks.mlp import MLP, MLPConfig
from exarl.types import Array, Arrays, ArraySpec, Namespace, Params

SMALL = (((16, 32), (4, 3), (2, 1)), ((16, 32), (3, 3), (1, 1)), ((32,), (1,), (1,)))
"""Filters, kernels and strides to recommend when an image is too small, largest first."""


@dataclass(frozen=True)
class CNNConfig:
    """Parameters of the convolutional network."""

    filters: tuple[int, ...] = param(
        (32, 64, 64), "filters of each convolutional layer", ge=1, le=65536
    )
    kernels: tuple[int, ...] = param((8, 4, 3), "side of each layer's kernel", ge=1, le=1024)
    strides: tuple[int, ...] = param((4, 2, 1), "stride of each layer", ge=1, le=1024)
    hidden: tuple[int, ...] = param(
        (512,), "units of each dense layer after the convolutions; [] for none", ge=1, le=65536
    )
    activation: Literal["relu", "tanh", "silu"] = param("relu", "activation of all hidden layers")
    layer_norm: bool = param(
        False,
        "normalise each layer to mean 0 and variance 1 before its activation, a convolution over its"
        " filters at each position",
    )


@dataclass(frozen=True)
class CNN(FeedForward):
    """Convolutions without padding, then dense layers; the last one is linear with ``outputs``.

    Images are [H, W], [H, W, C] or [C, H, W] (the shortest axis holds the channels, the last of
    equals), or a stack [F, ...] of such, whose frames become channels. Bytes are divided by 255.
    ``extra`` is the number of inputs that join the features of the convolutions, such as an action.
    """

    Config = CNNConfig
    joins_images: ClassVar[bool] = True
    """Whether numbers beside images are its ``extra`` inputs."""

    config: CNNConfig
    observation: ArraySpec
    outputs: int
    extra: int = 0

    def __post_init__(self) -> None:
        """ConfigError when the layers do not fit the image."""
        cfg = self.config
        if not len(cfg.filters) == len(cfg.kernels) == len(cfg.strides):
            raise ConfigError(
                "filters, kernels and strides need one number per layer, not"
                f" {len(cfg.filters)}, {len(cfg.kernels)} and {len(cfg.strides)}"
            )
        if cfg.layer_norm:
            check_normalised("filters", cfg.filters)
            check_normalised("hidden", cfg.hidden)
        height, width, _ = self._image
        if not _fits(height, width, cfg.kernels, cfg.strides):
            small = next(layers for layers in SMALL if _fits(height, width, *layers[1:]))
            flags = zip(("--filters", "--kernels", "--strides"), small, strict=True)
            words = " ".join(f"{flag} {','.join(map(str, values))}" for flag, values in flags)
            raise ConfigError(
                f"CNN: an image of {height}x{width} is too small for kernels"
                f" {list(cfg.kernels)} with strides {list(cfg.strides)}; try {words}"
            )

    def init(self, rng: np.random.Generator) -> Arrays:
        """``conv{n}/w`` [k, k, C, filters], ``conv{n}/b``, ``{n}/w``, ``{n}/b``; see ``uniform``."""
        params: Arrays = {}
        channels = self._image[2]
        layers = zip(self.config.kernels, self.config.filters, strict=True)
        for n, (k, filters) in enumerate(layers):
            w, b = uniform(rng, k * k * channels, filters)
            params |= {f"conv{n}/w": w.reshape(k, k, channels, filters), f"conv{n}/b": b}
            channels = filters
        return params | self._head.init(rng)

    def apply(
        self, xp: Namespace, params: Params, observations: Array, extra: Array | None = None
    ) -> Array:
        # Layer normalisation is over the last axis, the filters, at each position on its own, as in
        # PQN (Gallici et al., ICLR 2025): it commutes with shifts of the image, as the layer does.
        function = hidden_function(self.config.activation, self.config.layer_norm)
        x = observations.transpose(0, *(axis + 1 for axis in self._axes))
        x = x.astype(params["0/w"].dtype)
        x = x.reshape(len(x), *self._image)
        if self.observation.dtype == "uint8":
            x = x / 255
        for n, stride in enumerate(self.config.strides):
            x = function(xp, convolve(xp, x, params[f"conv{n}/w"], stride) + params[f"conv{n}/b"])
        return self._head.apply(xp, params, x, extra)

    def exported(self, params: Arrays) -> tuple[Layer, ...]:
        """What ``apply`` does, as layers for other programs; ValueError unless channels come last."""
        if self._axes != tuple(range(len(self._axes))):
            raise ValueError("only images with the channels last can be exported")
        cfg = self.config
        height, width, _ = self._image
        layers: list[Layer] = [Scale(1 / 255)] if self.observation.dtype == "uint8" else []
        shapes = zip(cfg.kernels, cfg.strides, cfg.filters, strict=True)
        for n, (kernel, stride, filters) in enumerate(shapes):
            w, b = params[f"conv{n}/w"], params[f"conv{n}/b"]
            layers.append(Convolution(w, b, stride, height, width))
            layers += exported_hidden(cfg.activation, cfg.layer_norm, filters)
            height, width = ((side - kernel) // stride + 1 for side in (height, width))
        return (*layers, *self._head.exported(params))

    @cached_property
    def _axes(self) -> tuple[int, ...]:
        """The axes of an observation in the order height, width, frames, channels."""
        shape = self.observation.shape
        if not 2 <= len(shape) <= 4 or 0 in shape:
            raise ConfigError(f"CNN needs images as observations, not arrays of shape {shape}")
        if len(shape) == 2:
            return 0, 1
        image = range(len(shape) - 3, len(shape))
        channel = min(reversed(image), key=shape.__getitem__)
        height, width = (axis for axis in image if axis != channel)
        return height, width, *range(len(shape) - 3), channel

    @cached_property
    def _image(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        height, width, *channels = (self.observation.shape[axis] for axis in self._axes)
        return height, width, int(np.prod(channels))

    @cached_property
    def _head(self) -> MLP:
        cfg = self.config
        height, width = (_length(side, cfg.kernels, cfg.strides) for side in self._image[:2])
        channels = cfg.filters[-1] if cfg.filters else self._image[2]
        features = ArraySpec((height * width * channels,), "float32")
        dense = MLPConfig(cfg.hidden, cfg.activation, layer_norm=cfg.layer_norm)
        return MLP(dense, features, self.outputs, self.extra)


def convolve(xp: Namespace, x: Array, w: Array, stride: int) -> Array:
    """[N, H, W, C] with kernels [k, k, C, filters] -> [N, H', W', filters], without padding."""
    count, height, width, channels = x.shape
    kernel, filters = w.shape[0], w.shape[-1]
    rows, columns = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    # Where the stride divides the kernel, stride x stride pixels first become the channels of one
    # cell: fewer and longer pieces to copy, half the time for the usual first layer.
    fold = stride if kernel % stride == 0 else 1
    step, side = stride // fold, kernel // fold
    high, wide = (rows - 1) * step + side, (columns - 1) * step + side
    x = x[:, : high * fold, : wide * fold]
    x = x.reshape(count, high, fold, wide, fold * channels).swapaxes(2, 3)
    x = x.reshape(count, high, wide, -1)
    w = w.reshape(side, fold, side, fold * channels, filters).swapaxes(1, 2)
    pieces = [
        x[:, i : i + high - side + 1 : step, j : j + wide - side + 1 : step]
        for i in range(side)
        for j in range(side)
    ]
    patches = xp.concatenate(pieces, axis=3).reshape(count * rows * columns, -1)
    return (patches @ w.reshape(-1, filters)).reshape(count, rows, columns, filters)


def _length(side: int, kernels: Sequence[int], strides: Sequence[int]) -> int:
    """The side of an image after the layers; below 1 when they do not fit."""
    for kernel, stride in zip(kernels, strides, strict=True):
        side = (side - kernel) // stride + 1
    return side


def _fits(height: int, width: int, kernels: Sequence[int], strides: Sequence[int]) -> bool:
    return min(_length(side, kernels, strides) for side in (height, width)) >= 1
