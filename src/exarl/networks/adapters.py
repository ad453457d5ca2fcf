"""Networks written with Flax or Equinox.

Nothing in EXARL imports this module, because it imports JAX: with such a network actors need JAX too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exarl.errors import ConfigError
from exarl.networks.layers import FeedForward
from exarl.types import Array, Arrays, ArraySpec, Namespace, Params, PyTree


class Adapted(FeedForward):
    """A network whose parameters are the float arrays of a JAX tree, named by their paths."""

    def __init__(
        self, config: object, observation: ArraySpec, outputs: int, extra: int = 0
    ) -> None:
        self.observation = observation
        self.outputs = outputs
        self.extra = extra

    def tree(self, key: Array) -> PyTree:
        """The whole network as a tree, with new parameters."""
        raise NotImplementedError

    def call(self, tree: PyTree, *inputs: Array) -> Array:
        """[N, *observation] (and [N, extra]) -> [N, outputs]."""
        raise NotImplementedError

    def init(self, rng: np.random.Generator) -> Arrays:
        """Parameters drawn with a key of JAX that ``rng`` gives."""
        tree = self.tree(jax.random.key(int(rng.integers(2**32))))
        return {name: np.array(leaf, np.float32) for name, leaf in _trained(tree)}

    def apply(
        self, xp: Namespace, params: Params, observations: Array, extra: Array | None = None
    ) -> Array:
        """Computed by JAX for any ``xp``; the result is an array of ``xp``."""
        inputs = (observations,) if extra is None else (observations, extra)
        return xp.asarray(self._forward({name: params[name] for name in self._names}, *inputs))

    @cached_property
    def _skeleton(self) -> PyTree:
        return self.tree(jax.random.key(0))

    @cached_property
    def _names(self) -> list[str]:
        return [name for name, _ in _trained(self._skeleton)]

    @cached_property
    def _forward(self) -> Callable[..., Array]:
        def forward(params: Params, *inputs: Array) -> Array:
            tree = jax.tree_util.tree_map_with_path(
                lambda path, leaf: params.get(_name(path), leaf), self._skeleton
            )
            return self.call(tree, *inputs)

        return jax.jit(forward)


def from_flax(make: Callable[[int], Any]) -> type[Adapted]:
    """The network class of Flax modules (linen) that ``make(outputs)`` gives.

    The module is called with a batch, ``module(observations)`` or ``module(observations, extra)``.
    It may have parameters only: no batch statistics, no dropout.
    """

    class Flax(Adapted):
        """A network written with Flax."""

        def tree(self, key: Array) -> PyTree:
            blank = [self.observation.zeros(1)]
            if self.extra:
                blank.append(np.zeros((1, self.extra), np.float32))
            variables = make(self.outputs).init(key, *blank)
            if others := sorted(set(variables) - {"params"}):
                raise ConfigError(f"a Flax network may only have parameters, not {others}")
            return variables

        def call(self, tree: PyTree, *inputs: Array) -> Array:
            return make(self.outputs).apply(tree, *inputs)

    return Flax


def from_equinox(make: Callable[..., Any]) -> type[Adapted]:
    """The network class of Equinox modules that ``make(key, observation, outputs)`` gives.

    ``observation`` has a ``shape`` and a ``dtype``. The module is called with one observation at a
    time. For a network with extra inputs, ``make`` gets their number as a fourth argument, and the
    module is called as ``module(observation, extra)``. All its float arrays are trained.
    """

    class Equinox(Adapted):
        """A network written with Equinox."""

        def tree(self, key: Array) -> PyTree:
            more = (self.extra,) if self.extra else ()
            return make(key, self.observation, self.outputs, *more)

        def call(self, tree: PyTree, *inputs: Array) -> Array:
            return jax.vmap(tree)(*inputs)

    return Equinox


def _trained(tree: PyTree) -> Iterator[tuple[str, jax.Array]]:
    """The float arrays of a tree, by name; a module's other leaves are functions and numbers."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating):
            yield _name(path), leaf


def _name(path: Sequence[object]) -> str:
    """``layers/0/weight``; each kind of key in a path has one of these three attributes."""
    kinds = ("key", "name", "idx")
    return "/".join(str(next(getattr(s, k) for k in kinds if hasattr(s, k))) for s in path)
