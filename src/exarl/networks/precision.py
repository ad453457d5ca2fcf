"""Networks that compute with fewer bits where they are compiled."""

from __future__ import annotations

from typing import Any

import numpy as np


class Reduced:
    """A network whose compiled passes, forward and backward, are made in bfloat16.

    Parameters, observations and memory are rounded at its door and its outputs widened again, so
    that gradients arrive in float32. In NumPy, where policies act, it is the network itself. One
    that widens its inputs on its own is right all the same, and no faster.
    """

    def __init__(self, network: Any) -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def apply(self, xp: Any, params: Any, observations: Any, extra: Any = None) -> Any:
        inputs = _inputs(observations, extra)
        if xp is np:
            return self._network.apply(np, params, *inputs)
        inputs = [narrow(xp, array) for array in inputs]
        return self._network.apply(xp, _each(narrow, xp, params), *inputs).astype(xp.float32)

    def step(
        self, xp: Any, params: Any, observations: Any, memory: Any, extra: Any = None
    ) -> tuple[Any, Any]:
        inputs = _inputs(observations, memory, extra)
        if xp is np:
            stepped: tuple[Any, Any] = self._network.step(np, params, *inputs)
            return stepped
        seen, memory, *more = inputs
        inputs = [narrow(xp, seen), _each(narrow, xp, memory), *(narrow(xp, a) for a in more)]
        outputs, after = self._network.step(xp, _each(narrow, xp, params), *inputs)
        return outputs.astype(xp.float32), _each(widened, xp, after)


def narrow(xp: Any, array: Any) -> Any:
    """Floating-point numbers as bfloat16; bytes and integers as they are."""
    return array.astype(xp.bfloat16) if xp.issubdtype(array.dtype, xp.floating) else array


def widened(xp: Any, array: Any) -> Any:
    return array.astype(xp.float32)


def _inputs(*given: Any) -> list[Any]:
    """Without the extra inputs where there are none: a user's own network need not know of them."""
    return list(given if given[-1] is not None else given[:-1])


def _each(change: Any, xp: Any, arrays: Any) -> dict[str, Any]:
    return {name: change(xp, array) for name, array in arrays.items()}
