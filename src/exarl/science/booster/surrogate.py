"""A learnt plant: a small neural network that predicts the next sample, over ``xp``.

Its input are the last ``look_back`` samples, scaled, as an array [variables, look_back]; its output is
the next sample, or its first channels, scaled likewise. Two kinds of file are read: the .npz that
``exarl surrogate`` writes, and Keras's HDF5 of the published model, whose LSTM layers step over the
five variables, each with its 150 samples as features.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from exarl.networks.layers import relu, sigmoid, tanh
from exarl.science.booster.kernel import VARIABLES
from exarl.types import Array, Namespace

PUBLISHED_RANGE = np.array(
    [
        [103.24697, -1.21031, -44.1033, 345.9375, 369.4153],
        [103.98612, 1.17969, 37.3311, 7059.6875, 7033.3862],
    ]
)
"""Minimum and maximum of each variable, with which the published models were scaled."""


def linear(xp: Namespace, x: Array) -> Array:
    return x


ACTIVATIONS = {"linear": linear, "relu": relu, "tanh": tanh, "sigmoid": sigmoid}


class Dense(NamedTuple):
    """``activation(x kernel + bias)``, over the last axis."""

    activation: str
    kernel: Array  # [inputs, units]
    bias: Array  # [units]


class LstmLayer(NamedTuple):
    """A long short-term memory over the axis before the last; gates in Keras's order i, f, c, o."""

    sequences: bool  # outputs of all steps, not only of the last
    kernel: Array  # [inputs, 4 units]
    recurrent: Array  # [units, 4 units]
    bias: Array  # [4 units]


class Flatten(NamedTuple):
    """The last two axes as one."""


Layer = Dense | LstmLayer | Flatten


@dataclass(frozen=True)
class Surrogate:
    """Layers, the number of samples they use, and the range of each variable for scaling."""

    layers: tuple[Layer, ...]
    look_back: int
    range: Array  # [2, variables]
    name: str = ""

    @property
    def weights(self) -> int:
        """The number of learnt parameters."""
        return sum(
            np.size(a) for layer in self.layers for a in layer if not isinstance(a, str | bool)
        )

    def on(self, xp: Namespace) -> Surrogate:
        """The same surrogate with arrays of ``xp``."""

        def moved(value: Any) -> Any:
            return xp.asarray(value) if isinstance(value, np.ndarray) else value

        layers = tuple(type(layer)(*map(moved, layer)) for layer in self.layers)
        return Surrogate(layers, self.look_back, xp.asarray(self.range), self.name)


def scaled(samples: Array, range: Array) -> Array:
    """Samples [variables, n] with each variable's range mapped to [0, 1]."""
    return (samples - range[0][:, None]) / (range[1] - range[0])[:, None]


def predict(xp: Namespace, surrogate: Surrogate, window: Array) -> Array:
    """The next sample's first channels, from [variables, look_back or more samples] before it."""
    x = scaled(window[:, -surrogate.look_back :], surrogate.range).astype(np.float32)
    out = forward(xp, surrogate.layers, x)
    low, high = surrogate.range[:, : out.shape[-1]]
    return low + (high - low) * out


def forward(xp: Namespace, layers: tuple[Layer, ...], x: Array) -> Array:
    """[..., variables, look_back] -> [..., outputs]"""
    for layer in layers:
        match layer:
            case Dense(activation, kernel, bias):
                x = ACTIVATIONS[activation](xp, x @ kernel + bias)
            case LstmLayer():
                x = remember(xp, layer, x)
            case Flatten():
                x = x.reshape(*x.shape[:-2], -1)
    return x


def remember(xp: Namespace, layer: LstmLayer, x: Array) -> Array:
    """[..., steps, inputs] -> [..., steps, units], or [..., units] after the last step."""
    units = layer.recurrent.shape[0]
    inputs = x @ layer.kernel + layer.bias
    h = c = xp.zeros((*x.shape[:-2], units), x.dtype)
    outputs = []
    for step in range(x.shape[-2]):
        z = inputs[..., step, :] + h @ layer.recurrent
        gates = sigmoid(xp, z)  # also of the candidate, which is not used: one call is faster
        keep, write, show = (gates[..., k * units : (k + 1) * units] for k in (1, 0, 3))
        c = keep * c + write * xp.tanh(z[..., 2 * units : 3 * units])
        h = show * xp.tanh(c)
        outputs.append(h)
    return xp.stack(outputs, -2) if layer.sequences else h


def load_surrogate(path: str) -> Surrogate:
    """The surrogate in an .npz of ``exarl surrogate`` or a file of Keras (.h5, .hdf5).

    ValueError when the file is missing or no surrogate.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise ValueError(f"surrogate {path} does not exist")
    if file.suffix in (".h5", ".hdf5"):
        from exarl.science.booster.keras import read_keras

        layers, look_back = read_keras(file)
        return Surrogate(layers, look_back, PUBLISHED_RANGE, file.name)
    try:
        with np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        kinds = json.loads(str(arrays["layers"]))
        layers = tuple(_layer(kind, arrays, f"{n}/") for n, kind in enumerate(kinds))
        made = Surrogate(layers, int(arrays["look_back"]), arrays["range"], file.name)
    except (OSError, BadZipFile, KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{path} is no surrogate: {error}") from error
    return checked(made)


def save_surrogate(surrogate: Surrogate, path: Path) -> None:
    """Write a surrogate of dense layers to ``path`` (.npz); ValueError for other layers."""
    arrays: dict[str, Any] = {"look_back": surrogate.look_back, "range": surrogate.range}
    kinds = []
    for n, layer in enumerate(surrogate.layers):
        if isinstance(layer, LstmLayer):
            raise ValueError("only dense layers can be written")
        kinds.append(layer.activation if isinstance(layer, Dense) else "flatten")
        if isinstance(layer, Dense):
            arrays |= {f"{n}/kernel": layer.kernel, f"{n}/bias": layer.bias}
    with path.open("wb") as file:
        np.savez(file, layers=json.dumps(kinds), **arrays)


def checked(surrogate: Surrogate) -> Surrogate:
    """The surrogate; ValueError unless it maps five variables to at least B:VIMIN and B:IMINER."""
    try:
        window = np.zeros((len(VARIABLES), surrogate.look_back), np.float32)
        out = forward(np, surrogate.layers, window)
    except (ValueError, KeyError) as error:
        raise ValueError(f"the layers of {surrogate.name} do not fit together: {error}") from error
    if out.ndim != 1 or not 2 <= len(out) <= len(VARIABLES):
        raise ValueError(f"{surrogate.name} gives an array of {out.shape}, not the next sample")
    return surrogate


def _layer(kind: str, arrays: dict[str, np.ndarray], prefix: str) -> Layer:
    if kind == "flatten":
        return Flatten()
    if kind not in ACTIVATIONS:
        raise ValueError(f"unknown layer '{kind}'")
    return Dense(kind, arrays[f"{prefix}kernel"], arrays[f"{prefix}bias"])
