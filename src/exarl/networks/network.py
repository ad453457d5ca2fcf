"""What every network offers, a user's own included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from exarl.types import Array, Arrays, ArraySpec, Namespace, Params

RUNNING = "running/"
"""Parameters whose names begin so are not trained by gradients: they follow the batches (``learn``)."""


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


class BatchNetwork(Network, Protocol):
    """A network that learns by the statistics of its batches, and acts by what it kept of them."""

    @property
    def normalises_batches(self) -> bool:
        """Whether it does so as it is configured; then losses go through ``learn``."""

    def learn(
        self,
        xp: Namespace,
        params: Params,
        observations: Array,
        extra: Array | None = None,
        renormalise: bool | Array = False,
    ) -> tuple[Array, dict[str, Array]]:
        """The outputs for a batch, and the ``running/`` parameters after it."""
