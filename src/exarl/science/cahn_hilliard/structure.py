"""The structure of a morphology: spectrum averaged over directions, orientation, contrast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exarl.science.cahn_hilliard.kernel import mirror_counts, mode_power, squared, wave_vectors
from exarl.types import Array, Namespace

PLANAR = ("vertical", "horizontal", "oblique", "isotropic")
"""Order of a 2-D field: shares of power in vertical stripes (wave vector within 22.5 degrees of x),
in horizontal ones, in the rest; and 1 - nematic order, which is 1 without a preferred direction."""
SOLID = ("vertical", "along_x", "along_y", "horizontal", "isotropic")
"""Order of a 3-D field: share of power of what stands upright (|k_z| < |k| / 3); shares of k_x^2,
k_y^2 and k_z^2 in the mean of k^2; and 1 - anisotropy, which is 1 where these three are equal."""
ORDER = {2: PLANAR, 3: SOLID}
NOTHING = 1e-12
"""Added to a total before a division: a uniform field has no order."""


class Structure(NamedTuple):
    """One morphology: ``spectrum`` by shell, ``order`` as named above, ``contrast``."""

    spectrum: Array
    order: Array
    contrast: Array


@dataclass(frozen=True)
class Probe:
    """How a field is measured: linear maps of its modes, in the layout of rfftn."""

    shells: np.ndarray
    """[shells, modes]: maps amplitudes to 2 pi times the shell's number times their mean over it."""
    sectors: np.ndarray
    """[sectors, modes]: maps power to the sums from which the order is computed."""
    full: float
    """Standard deviation of a completely separated field."""


def make_probe(
    shape: tuple[int, ...],
    lengths: tuple[float, ...],
    shells: int,
    spacing: float,
    mean: float,
    dtype: str,
) -> Probe:
    """The probe of a periodic box; shell j has the wave numbers nearest to j times ``spacing``."""
    vectors = wave_vectors(shape, lengths)
    k2 = squared(vectors)
    number = np.rint(np.sqrt(k2) / spacing).astype(int).ravel()
    counts = np.broadcast_to(mirror_counts(shape), k2.shape).ravel()
    members = (np.arange(1, shells + 1)[:, None] == number) * counts
    rings = 2 * np.pi * np.arange(1, shells + 1)[:, None]
    sectors = _planar(vectors, k2) if len(shape) == 2 else _solid(vectors, k2)
    return Probe(
        (rings * members / members.sum(axis=1, keepdims=True)).astype(dtype),
        sectors.reshape(len(sectors), -1).astype(dtype),
        float(np.sqrt(1 - mean**2)),
    )


def measure(xp: Namespace, field: Array, probe: Probe) -> Structure:
    """The structure of a periodic field."""
    power = mode_power(xp, field)
    # mode_power includes mirror images; an amplitude is that of one mode.
    amplitude = xp.sqrt(power / mirror_counts(field.shape, power.dtype))
    sums = probe.sectors @ power.ravel()
    total = sums[0] + NOTHING
    parts = sums[1:] / total
    order = _planar_order(xp, parts) if field.ndim == 2 else _solid_order(xp, parts)
    return Structure(probe.shells @ amplitude.ravel(), order, xp.sqrt(sums[0]) / probe.full)


def _planar(vectors: list[np.ndarray], k2: np.ndarray) -> np.ndarray:
    ky, kx = np.broadcast_arrays(*vectors)
    angle = np.arctan2(np.abs(ky), np.abs(kx))
    some = k2 > 0
    upright, flat = some & (angle < np.pi / 8), some & (angle > 3 * np.pi / 8)
    known = np.where(some, k2, 1)
    return np.stack([some, upright, flat, (kx**2 - ky**2) / known, 2 * kx * ky / known])


def _planar_order(xp: Namespace, parts: Array) -> Array:
    upright, flat, even, odd = parts
    return xp.stack([upright, flat, 1 - upright - flat, 1 - xp.sqrt(even**2 + odd**2)])


def _solid(vectors: list[np.ndarray], k2: np.ndarray) -> np.ndarray:
    kz, ky, kx = np.broadcast_arrays(*vectors)
    some = k2 > 0
    scale = k2.max()
    squares = [k**2 / scale for k in (kx, ky, kz)]
    return np.stack([some, some & (9 * kz**2 < k2), *squares])


def _solid_order(xp: Namespace, parts: Array) -> Array:
    shares = parts[1:] / (xp.sum(parts[1:]) + NOTHING)
    anisotropy = xp.sqrt(1.5 * xp.sum((shares - 1 / 3) ** 2))
    return xp.concatenate([parts[:1], shares, 1 - anisotropy[None]])
