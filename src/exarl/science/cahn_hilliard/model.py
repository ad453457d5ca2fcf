"""A simulation: material, box and numerical parameters, and one environment step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from exarl.science.cahn_hilliard.kernel import (
    Coefficients,
    energy,
    evolve,
    mirrored,
    propagator,
    squared,
    wave_vectors,
)
from exarl.science.cahn_hilliard.structure import Probe, Structure, make_probe, measure
from exarl.types import Array, Namespace


@dataclass(frozen=True)
class Model:
    """A simulation whose material depends on one ``control`` between ``low`` and ``high``."""

    shape: tuple[int, ...]  # y, x or z, y, x
    lengths: tuple[float, ...]
    mean: float
    low: float
    high: float
    material: Callable[[Array], Coefficients]
    step_time: float
    dt: float  # upper limit; the time steps of one environment step have equal length
    shells: int
    walls: bool = False  # zero flux instead of periodic
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("step_time", "dt"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if not abs(self.mean) < 1:
            raise ValueError(f"mean must lie between -1 and 1, not {self.mean}")
        if not min(self.lengths) > 0:
            raise ValueError(f"a box needs positive lengths, not {self.lengths}")
        if min(self.shape) < 4 or any(n % 2 for n in self.shape):
            raise ValueError(f"a grid has an even number of points, 4 or more, not {self.shape}")
        if not 1 <= self.shells <= max(self.shape) // 2:
            raise ValueError(
                f"shells must lie between 1 and {max(self.shape) // 2} for this grid, "
                f"not {self.shells}"
            )

    @property
    def substeps(self) -> int:
        """Time steps of the solver in one step of the environment."""
        return max(1, math.ceil(self.step_time / self.dt - 1e-9))

    @cached_property
    def k2(self) -> np.ndarray:
        """k^2 of every mode of the solved box, which has twice the lengths if there are walls."""
        return squared(wave_vectors(*self._solved)).astype(self.dtype)

    @cached_property
    def probe(self) -> Probe:
        """The probe that measures the structure."""
        spacing = 2 * np.pi / max(self.lengths)
        return make_probe(*self._solved, self.shells, spacing, self.mean, self.dtype)

    def advance(self, xp: Namespace, field: Array, control: Array) -> Array:
        """``field`` one environment step later."""
        step = propagator(
            xp, xp.asarray(self.k2), self.material(control), self.step_time / self.substeps
        )
        solved = evolve(xp, self._periodic(xp, field), step, self.mean, self.substeps)
        return solved[tuple(slice(n) for n in self.shape)] if self.walls else solved

    def structure(self, xp: Namespace, field: Array) -> Structure:
        """The structure of ``field``."""
        return measure(xp, self._periodic(xp, field), self.probe)

    def energy(self, xp: Namespace, field: Array, control: Array) -> Array:
        """Free energy per volume of ``field``."""
        return energy(xp, self._periodic(xp, field), self.k2, self.material(control), self.mean)

    def _periodic(self, xp: Namespace, field: Array) -> Array:
        return mirrored(xp, field) if self.walls else field

    @property
    def _solved(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        factor = 2 if self.walls else 1
        return tuple(factor * n for n in self.shape), tuple(factor * x for x in self.lengths)
