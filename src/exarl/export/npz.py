"""A policy as a NumPy archive: the kinds of its layers, and the fields of each as arrays."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np

from exarl.export.policy import Layer, Policy

_KINDS = {kind.__name__: kind for kind in get_args(Layer)}


def to_npz(policy: Policy, path: str | os.PathLike[str]) -> None:
    """Write ``policy`` to ``path``: "kinds", "inputs", "outputs", and "i/field" of layer i."""
    arrays: dict[str, Any] = {
        "kinds": np.array([type(layer).__name__ for layer in policy.layers]),
        "inputs": np.array(policy.inputs),
        "outputs": np.array(policy.outputs),
    }
    for number, layer in enumerate(policy.layers):
        for field in fields(layer):
            arrays[f"{number}/{field.name}"] = np.asarray(getattr(layer, field.name))
    with Path(path).open("wb") as file:  # given a name, NumPy would add a suffix to it
        np.savez(file, **arrays)


def from_npz(path: str | os.PathLike[str]) -> Policy:
    """The policy that ``to_npz`` wrote."""
    with np.load(path, allow_pickle=False) as file:
        layers = []
        for number, kind in enumerate(file["kinds"].tolist()):
            names = [field.name for field in fields(_KINDS[kind])]
            values = [file[f"{number}/{name}"] for name in names]
            layers.append(_KINDS[kind](*(v if v.ndim else v.item() for v in values)))
        return Policy(tuple(layers), int(file["inputs"]), int(file["outputs"]))
