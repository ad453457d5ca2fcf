"""A policy as a chain of layers, free of agents and networks, and what it computes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

import numpy as np

FORBIDDEN = -1e9
"""What is not allowed is rated so."""


@dataclass(frozen=True)
class Affine:
    """x @ weight + bias."""

    weight: np.ndarray  # [in, out]
    bias: np.ndarray  # [out]


Function = Literal["relu", "tanh", "silu"]


@dataclass(frozen=True)
class Activation:
    """A function of each value."""

    name: Function


@dataclass(frozen=True)
class LayerNorm:
    """Mean 0 and variance 1 for each ``features`` values in a row: those of one position."""

    features: int
    epsilon: float  # added to the variance


@dataclass(frozen=True)
class Normalise:
    """(x - mean) / std, cut to +-clip."""

    mean: np.ndarray  # [in]
    std: np.ndarray  # [in], positive
    clip: float


@dataclass(frozen=True)
class Scale:
    """x * factor."""

    factor: float


@dataclass(frozen=True)
class Convolution:
    """Over a picture [height, width, channels in], 'valid' padding; flat in and out."""

    weight: np.ndarray  # [kernel height, kernel width, channels in, channels out]
    bias: np.ndarray  # [channels out]
    stride: int
    height: int
    width: int

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of what comes out."""
        rows, columns = self.weight.shape[:2]
        return (self.height - rows) // self.stride + 1, (self.width - columns) // self.stride + 1


@dataclass(frozen=True)
class Lstm:
    """A recurrent cell: gates i, f, g, o = [x, h] @ weight + bias; h is what comes out."""

    weight: np.ndarray  # [in + units, 4 * units]
    bias: np.ndarray  # [4 * units]
    units: int


@dataclass(frozen=True)
class ArgMax:
    """The index of the largest value, the first of equals."""


@dataclass(frozen=True)
class Choose:
    """Row x of ``values``: what the environment takes for the action of this index."""

    values: np.ndarray  # [actions, out]


@dataclass(frozen=True)
class Pick:
    """The values at these places."""

    places: np.ndarray  # [out], whole numbers


@dataclass(frozen=True)
class Mask:
    """The last values of x where the policy's observation, from ``start`` to before ``stop``, is above
    0: allowed; else ``FORBIDDEN``. What is before them stays as it is."""

    start: int
    stop: int


@dataclass(frozen=True)
class ArgMaxEach:
    """For each run of ``counts`` values the index of the largest, the first of equals."""

    counts: np.ndarray  # [out], whole numbers


@dataclass(frozen=True)
class ChooseEach:
    """Value x[i] of row i: what the environment takes for the index of each factor."""

    values: np.ndarray  # [factors, most]


@dataclass(frozen=True)
class Mixed:
    """First numbers: ``shift`` + x * ``scale``, never outside of [low, high], of ``whole`` ones the
    nearest. Then choices: for each run of ``counts`` values ``first`` plus the index of the largest,
    the first of equals."""

    shift: np.ndarray  # [numbers]
    scale: np.ndarray  # [numbers]
    low: np.ndarray  # [numbers], finite
    high: np.ndarray  # [numbers], finite
    whole: np.ndarray  # [numbers], 1 for whole numbers, else 0
    counts: np.ndarray  # [factors], whole numbers
    first: np.ndarray  # [factors], whole numbers


@dataclass(frozen=True)
class Squash:
    """tanh."""


@dataclass(frozen=True)
class ToBox:
    """[-1, 1] to [low, high], and never outside it."""

    low: np.ndarray  # [in], finite
    high: np.ndarray  # [in], finite


@dataclass(frozen=True)
class Round:
    """The nearest whole number, of two the even one."""


Layer = (
    Affine
    | Activation
    | LayerNorm
    | Normalise
    | Scale
    | Convolution
    | Lstm
    | ArgMax
    | Choose
    | Pick
    | Mask
    | ArgMaxEach
    | ChooseEach
    | Mixed
    | Squash
    | ToBox
    | Round
)


@dataclass(frozen=True)
class Policy:
    """What to do to a flat observation of ``inputs`` values, to get an action of ``outputs``.

    ValueError when a layer does not fit what the one before it gives, or holds what is not finite.
    """

    layers: tuple[Layer, ...]
    inputs: int
    outputs: int

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("a policy has at least one layer")
        if self.sizes()[-1] != self.outputs:
            raise ValueError(f"the layers give {self.sizes()[-1]} outputs, not {self.outputs}")

    def sizes(self) -> list[int]:
        """How many values there are before the first layer and after each."""
        sizes = [self.inputs]
        for number, layer in enumerate(self.layers):
            try:
                sizes.append(_size_after(layer, sizes[-1]))
            except ValueError as error:
                raise ValueError(f"layer {number} ({type(layer).__name__}): {error}") from error
        return sizes

    @property
    def recurrent(self) -> bool:
        """Whether an action depends on the observations before."""
        return any(isinstance(layer, Lstm) for layer in self.layers)


def evaluate(policy: Policy, observations: np.ndarray) -> np.ndarray:
    """Actions [N, outputs] for observations [N, inputs], in float32.

    To a recurrent policy the rows are one episode, step by step from its beginning.
    """
    x = np.asarray(observations, np.float32)
    if x.ndim != 2 or x.shape[1] != policy.inputs:
        raise ValueError(f"observations are [N, {policy.inputs}], not {x.shape}")
    seen = x
    for layer in policy.layers:
        x = _apply(layer, x, seen).astype(np.float32, copy=False)
    return x


def _apply(layer: Layer, x: np.ndarray, seen: np.ndarray) -> np.ndarray:
    match layer:
        case Affine():
            return x @ layer.weight + layer.bias
        case Activation("relu"):
            return np.maximum(x, 0)
        case Activation("silu"):
            return x * _sigmoid(x)
        case Activation() | Squash():
            return np.tanh(x)
        case LayerNorm():
            groups = x.reshape(len(x), -1, layer.features)
            centred = groups - groups.mean(2, keepdims=True)
            variance = np.square(centred).mean(2, keepdims=True)
            return (centred / np.sqrt(variance + layer.epsilon)).reshape(x.shape)
        case Normalise():
            return np.clip((x - layer.mean) / layer.std, -layer.clip, layer.clip)
        case Scale():
            return x * layer.factor
        case Convolution():
            return _convolve(layer, x)
        case Lstm():
            return _unroll(layer, x)
        case ArgMax():
            return x.argmax(1, keepdims=True)
        case Choose():
            return layer.values[x[:, 0].astype(int)]
        case Pick():
            return x[:, layer.places.astype(int)]
        case Mask():
            allowed = seen[:, layer.start : layer.stop] > 0
            before, rated = np.split(x, [x.shape[1] - allowed.shape[1]], 1)
            return np.concatenate([before, np.where(allowed, rated, FORBIDDEN)], 1)
        case ArgMaxEach():
            return _argmax_each(x, layer.counts)
        case Mixed():
            numbers, rated = np.split(x, [len(layer.shift)], 1)
            moved = np.clip(layer.shift + numbers * layer.scale, layer.low, layer.high)
            moved = np.where(layer.whole > 0, np.rint(moved), moved)
            return np.concatenate([moved, layer.first + _argmax_each(rated, layer.counts)], 1)
        case ChooseEach():
            return layer.values[np.arange(x.shape[1]), x.astype(int)]
        case ToBox():
            moved = layer.low + (x + 1) * (0.5 * (layer.high - layer.low))
            return np.clip(moved, layer.low, layer.high)
        case Round():
            return np.rint(x)


def _argmax_each(x: np.ndarray, counts: np.ndarray) -> np.ndarray:
    parts = np.split(x, np.cumsum(counts)[:-1].astype(int), 1)
    return np.stack([part.argmax(1) for part in parts], 1)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))  # without overflow


def _convolve(layer: Convolution, x: np.ndarray) -> np.ndarray:
    pictures = x.reshape(len(x), layer.height, layer.width, -1)
    windows = np.lib.stride_tricks.sliding_window_view(pictures, layer.weight.shape[:2], (1, 2))
    windows = windows[:, :: layer.stride, :: layer.stride]  # [N, rows, columns, in, kh, kw]
    found = np.tensordot(windows, layer.weight, ([4, 5, 3], [0, 1, 2])) + layer.bias
    return found.reshape(len(x), -1)


def _unroll(layer: Lstm, x: np.ndarray) -> np.ndarray:
    h = c = np.zeros(layer.units, np.float32)
    out = np.empty((len(x), layer.units), np.float32)
    for step, row in enumerate(x):
        i, f, g, o = np.split(np.concatenate([row, h]) @ layer.weight + layer.bias, 4)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        out[step] = h = (_sigmoid(o) * np.tanh(c)).astype(np.float32)
    return out


def _size_after(layer: Layer, size: int) -> int:
    """How many values ``layer`` makes of ``size``; ValueError when it cannot take them."""
    taken, given = size, size
    shapes: dict[str, tuple[int, ...]] = {}
    match layer:
        case Activation(name=function) if function not in get_args(Function):
            raise ValueError(f"no function '{function}'")
        case Affine(weight=weight):
            taken, given = weight.shape
            shapes = {"bias": (given,)}
        case Convolution(weight=weight):
            rows, columns = layer.output
            taken = layer.height * layer.width * weight.shape[2]
            given = rows * columns * weight.shape[3]
            shapes = {"bias": weight.shape[3:]}
        case Lstm(weight=weight, units=units):
            taken, given = len(weight) - units, units
            shapes = {"weight": (taken + units, 4 * units), "bias": (4 * units,)}
        case LayerNorm(features=features):
            if features < 1 or size % features:
                raise ValueError(f"{size} values are no groups of {features}")
            if layer.epsilon <= 0:
                raise ValueError("epsilon is not positive")
        case Normalise():
            shapes = {"mean": (size,), "std": (size,)}
            if not (layer.std > 0).all():
                raise ValueError("std is not positive")
        case ToBox():
            shapes = {"low": (size,), "high": (size,)}
        case ArgMax():
            given = 1
        case Choose(values=values):
            taken, given = 1, values.shape[1]
        case Mask(start=start, stop=stop):
            taken = given = max(size, stop - start)
        case Mixed(shift=shift, counts=counts):
            taken, given = len(shift) + int(counts.sum()), len(shift) + len(counts)
            shapes = dict.fromkeys(("scale", "low", "high", "whole"), shift.shape)
            shapes["first"] = counts.shape
        case Pick(places=places):
            given = len(places)
            if places.min() < 0 or places.max() >= size:
                raise ValueError(f"picks places beyond {size} values")
        case ArgMaxEach(counts=counts):
            taken, given = int(counts.sum()), len(counts)
        case ChooseEach(values=values):
            taken = given = len(values)
    if taken != size or given < 1:
        raise ValueError(f"takes {taken} values and gives {given}, but there are {size}")
    _check_fields(layer, shapes)
    return given


def _check_fields(layer: Layer, shapes: dict[str, tuple[int, ...]]) -> None:
    """ValueError unless the fields have these shapes and are finite."""
    for name, shape in shapes.items():
        if getattr(layer, name).shape != shape:
            raise ValueError(f"{name} has shape {getattr(layer, name).shape}, not {shape}")
    for field in fields(layer):
        value = getattr(layer, field.name)
        if not isinstance(value, str) and not np.isfinite(value).all():
            raise ValueError(f"{field.name} is not finite")
