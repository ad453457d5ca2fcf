"""Networks that compute in bfloat16 where they are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from exarl.networks.network import RUNNING, Network
from exarl.types import Array, Namespace, Params


class Reduced:
    """A network whose compiled passes, forward and backward, are made in bfloat16.

    Parameters, observations and memory are rounded on the way in and outputs widened on the way out,
    so gradients arrive in float32. In NumPy, where policies act, it is the network itself. A network
    that converts its inputs to float32 itself gives correct results, but is not faster.
    """

    def __init__(self, network: Network) -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def apply(
        self, xp: Namespace, params: Params, observations: Array, extra: Array | None = None
    ) -> Array:
        more = _given(extra)
        if xp is np:
            return self._network.apply(np, params, observations, *more)
        inputs = [narrow(xp, array) for array in (observations, *more)]
        return self._network.apply(xp, _each(narrow, xp, params), *inputs).astype(xp.float32)

    def learn(
        self,
        xp: Namespace,
        params: Params,
        observations: Array,
        extra: Array | None = None,
        renormalise: bool | Array = False,
    ) -> tuple[Array, dict[str, Array]]:
        """As of the network, which must have it; the running moments stay float32."""
        inputs = [narrow(xp, array) for array in (observations, *_given(extra))]
        outputs, after = self._network.learn(  # type: ignore[attr-defined]
            xp, _each(narrow, xp, params), *inputs, renormalise=renormalise
        )
        return outputs.astype(xp.float32), after

    def step(
        self,
        xp: Namespace,
        params: Params,
        observations: Array,
        memory: Params,
        extra: Array | None = None,
    ) -> tuple[Array, Params]:
        more = _given(extra)
        if xp is np:
            return self._network.step(np, params, observations, memory, *more)
        narrowed = [narrow(xp, array) for array in more]
        outputs, after = self._network.step(
            xp,
            _each(narrow, xp, params),
            narrow(xp, observations),
            _each(narrow, xp, memory),
            *narrowed,
        )
        return outputs.astype(xp.float32), _each(widen, xp, after)


def reduced(make: Callable[..., Network]) -> Callable[..., Network]:
    """A function that makes the networks of ``make``, which then compute with fewer bits."""

    def made(outputs: int, extra: int = 0) -> Network:
        return Reduced(make(outputs, extra=extra) if extra else make(outputs))

    return made


def narrow(xp: Namespace, array: Array) -> Array:
    """Floating-point numbers as bfloat16; bytes and integers unchanged."""
    return array.astype(xp.bfloat16) if xp.issubdtype(array.dtype, xp.floating) else array


def widen(xp: Namespace, array: Array) -> Array:
    """The numbers as float32."""
    return array.astype(xp.float32)


def _given(extra: Array | None) -> tuple[Array, ...]:
    """The extra inputs, if there are any: a user's own network need not take them."""
    return () if extra is None else (extra,)


def _each(
    change: Callable[[Namespace, Array], Array], xp: Namespace, arrays: Params
) -> dict[str, Array]:
    return {
        name: array if name.startswith(RUNNING) else change(xp, array)
        for name, array in arrays.items()
    }
