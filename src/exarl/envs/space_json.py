"""Gymnasium's spaces as JSON, in the form that Minari's datasets use, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from exarl.envs.base import Space

JSON = Mapping[str, Any]


def space_to_json(space: Space) -> dict[str, Any]:
    """``space`` as plain data; ValueError for a kind of space that has no such form.

    Bounds of a Box that are everywhere the same are one number, and infinite ones are words.
    """
    kind = type(space).__name__
    if isinstance(space, spaces.Box):
        bounds = {"low": _bound(space.low), "high": _bound(space.high)}
        return {"type": kind, "dtype": str(space.dtype), "shape": list(space.shape), **bounds}
    if isinstance(space, spaces.Discrete):
        return {"type": kind, "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        form = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
        return {"type": kind, "dtype": str(space.dtype), **form}
    if isinstance(space, spaces.MultiBinary):
        return {"type": kind, "n": space.n if isinstance(space.n, int) else list(space.shape)}
    if isinstance(space, spaces.Dict):
        parts = {name: space_to_json(part) for name, part in space.spaces.items()}
        return {"type": kind, "subspaces": parts}
    if isinstance(space, spaces.Tuple):
        return {"type": kind, "subspaces": [space_to_json(part) for part in space.spaces]}
    if isinstance(space, spaces.Text):
        lengths = {"min_length": space.min_length, "max_length": space.max_length}
        return {"type": kind, **lengths, "charset": space.characters}
    raise ValueError(f"a {kind} space has no form in JSON")


def space_from_json(data: JSON) -> Space:
    """The space that ``space_to_json`` described; ValueError if ``data`` describes none."""
    kind = data.get("type")
    if kind == "Box":
        dtype, shape = np.dtype(data["dtype"]), tuple(data["shape"])
        low, high = (_bounds(data[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(data["n"], start=data.get("start", 0))
    if kind == "MultiDiscrete":
        nvec = np.array(data["nvec"])
        start = np.array(data.get("start", np.zeros_like(nvec)))
        return spaces.MultiDiscrete(nvec, np.dtype(data["dtype"]).type, start=start)  # type: ignore[arg-type]
    if kind == "MultiBinary":
        return spaces.MultiBinary(data["n"])
    if kind == "Dict":
        return spaces.Dict([(n, space_from_json(part)) for n, part in data["subspaces"].items()])
    if kind == "Tuple":
        return spaces.Tuple([space_from_json(part) for part in data["subspaces"]])
    if kind == "Text":
        lengths = {name: data[name] for name in ("min_length", "max_length")}
        return spaces.Text(**lengths, charset=data["charset"])
    raise ValueError(f"no space is of the type {kind!r}")


def _bound(bound: np.ndarray) -> Any:
    values = [v if np.isfinite(v) else str(v) for v in bound.ravel().tolist()]
    if len(set(values)) == 1:
        return values[0]
    return np.array(values, object).reshape(bound.shape).tolist()


def _bounds(data: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    number = np.asarray(data, np.float64 if dtype.kind == "f" else dtype)
    return np.broadcast_to(number.astype(dtype), shape).copy()
