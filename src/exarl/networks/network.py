"""What every network offers, a user's own included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from exarl.types import Array, Arrays, ArraySpec, Namespace, Params


class Network(Protocol):
    """Parameters, and one forward pass over an array namespace ``xp``.

    A network without memory offers ``apply``; one with memory offers ``step`` and names in
    ``memory`` what it keeps for each environment between steps.
    """

    def init(self, rng: np.random.Generator) -> Arrays:
        """Initial parameters by name."""

    def apply(
        self, xp: Namespace, params: Params, observations: Array, extra: Array | None = None
    ) -> Array:
        """[N, *observation] (and [N, extra]) -> [N, outputs]."""

    @property
    def memory(self) -> Mapping[str, ArraySpec]:
        """Name -> shape of one environment's memory."""

    def step(
        self,
        xp: Namespace,
        params: Params,
        observations: Array,
        memory: Params,
        extra: Array | None = None,
    ) -> tuple[Array, Params]:
        """One step with memory [N, ...]: outputs [N, outputs], and the memory after it."""
