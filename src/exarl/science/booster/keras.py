"""Keras's HDF5 files, read without TensorFlow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from exarl.errors import install
from exarl.science.booster.kernel import VARIABLES
from exarl.science.booster.surrogate import ACTIVATIONS, Dense, Layer, LstmLayer

if TYPE_CHECKING:
    import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]

PASSED_OVER = ("InputLayer", "Dropout")
"""Layers without effect when a model is evaluated."""


def read_keras(path: Path) -> tuple[tuple[Layer, ...], int]:
    """The layers of a sequential model of LSTM and Dense layers, and the number of samples it uses.

    ValueError when the file is no such model.
    """
    try:
        import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        raise ValueError(
            f"a Keras surrogate needs the package h5py: {install('booster')}"
        ) from error
    try:
        with h5py.File(path, "r") as file:
            model = json.loads(_text(file.attrs["model_config"]))
            weights = file["model_weights"]
            layers = tuple(
                _layer(layer["class_name"], layer["config"], _arrays(weights, layer["config"]))
                for layer in model["config"]["layers"]
                if layer["class_name"] not in PASSED_OVER
            )
    except (OSError, KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path.name} is no Keras model in HDF5: {error}") from error
    first = layers[0] if layers else None
    if not isinstance(first, LstmLayer) or not isinstance(layers[-1], Dense):
        raise ValueError(f"{path.name} does not begin with an LSTM layer and end with a dense one")
    if layers[-1].kernel.shape[1] not in range(2, len(VARIABLES) + 1):
        raise ValueError(f"{path.name} does not give the next B:VIMIN and B:IMINER")
    return layers, first.kernel.shape[0]


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _arrays(weights: h5py.Group, config: dict[str, Any]) -> dict[str, np.ndarray]:
    """A layer's arrays by the last part of their names; the rest depends on Keras's version."""
    found: dict[str, np.ndarray] = {}

    def visit(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if hasattr(item, "dtype"):
            found[name.rpartition("/")[2].partition(":")[0]] = np.asarray(item, np.float32)

    if config["name"] in weights:
        weights[config["name"]].visititems(visit)
    return found


def _layer(kind: str, config: dict[str, Any], arrays: dict[str, np.ndarray]) -> Layer:
    bias = arrays.get("bias")
    if kind == "Dense" and config["activation"] in ACTIVATIONS:
        bias = np.zeros(config["units"], np.float32) if bias is None else bias
        return Dense(config["activation"], arrays["kernel"], bias)
    usual = {
        "activation": "tanh",
        "recurrent_activation": "sigmoid",
        "go_backwards": False,
        "stateful": False,
    }
    if kind == "LSTM" and all(config.get(key, value) == value for key, value in usual.items()):
        bias = np.zeros(4 * config["units"], np.float32) if bias is None else bias
        return LstmLayer(
            bool(config["return_sequences"]), arrays["kernel"], arrays["recurrent_kernel"], bias
        )
    raise ValueError(f"layer '{config['name']}' is a {kind} of a kind that is not supported")
