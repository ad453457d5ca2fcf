"""Cahn-Hilliard-Oono dynamics in two or three dimensions: a spectral solver over ``xp``.

    dc/dt = lap(c^3 - c) - eps2 lap^2 c - sigma (c - mean)

The time-dependent Landau-Ginzburg model of the 3-D environment is the same equation (kappa is eps2).
Time stepping is ETDRK2, the second-order exponential Runge-Kutta scheme: the linear part is exact,
and a term ``STABILITY k^2`` is moved from the cubic into it, which keeps large steps stable.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from exarl.envs.functional import repeat
from exarl.types import Array, Namespace

STABILITY = 2.0
"""S of the splitting; with 2 the energy falls for time steps up to 2e-4 in the polymer's units."""
SERIES = (1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720, 1 / 5040, 1 / 40320)


class Polymer(NamedTuple):
    """A block copolymer whose interaction chi is inverse to the temperature; lengths in nm."""

    chi_min: float = 0.055
    chi_max: float = 0.5
    t_min: float = 0.1
    t_max: float = 1.0
    chain: float = 1100.0
    kuhn: float = 1.75
    unit: float = 750.0  # the length that counts as 1
    mean: float = 0.15  # of c = 1 - 2 f, f the fraction of one block


class Coefficients(NamedTuple):
    """The material's coefficients in the equation: numbers, or arrays with one element."""

    eps2: Array | float
    sigma: Array | float


class Propagator(NamedTuple):
    """One time step in Fourier space: the decay of each mode, and the two weights of the cubic term."""

    decay: Array
    first: Array
    second: Array


def polymer_coefficients(polymer: Polymer, temperature: Array) -> Coefficients:
    """The coefficients at a temperature (an array or a number)."""
    p = polymer
    cold = (1 / temperature - 1 / p.t_max) / (1 / p.t_min - 1 / p.t_max)
    chi = p.chi_min + (p.chi_max - p.chi_min) * cold
    mixed = (1 - p.mean**2) / 4  # f (1 - f)
    ratio = p.kuhn / p.unit
    return Coefficients(ratio**2 / (3 * mixed * chi), 36 / (mixed**2 * ratio**2 * chi * p.chain**2))


def wave_vectors(shape: tuple[int, ...], lengths: tuple[float, ...]) -> list[np.ndarray]:
    """Components of the wave vector along each axis, shaped to broadcast, in the layout of rfftn."""
    last = len(shape) - 1
    parts = []
    for axis, (n, length) in enumerate(zip(shape, lengths, strict=True)):
        frequency = np.fft.rfftfreq(n) if axis == last else np.fft.fftfreq(n)
        form = [-1 if other == axis else 1 for other in range(len(shape))]
        parts.append((2 * np.pi * n / length * frequency).reshape(form))
    return parts


def squared(vectors: list[np.ndarray]) -> np.ndarray:
    """k^2 of every mode."""
    total: np.ndarray = sum((k * k for k in vectors[1:]), vectors[0] ** 2)
    return total


def growth_rate(k2: Array, material: Coefficients, mean: float) -> Array:
    """Linear growth rate of a mode about the uniform state c = ``mean``."""
    return -material.sigma + (1 - 3 * mean**2) * k2 - material.eps2 * k2 * k2


def propagator(xp: Namespace, k2: Array, material: Coefficients, dt: float) -> Propagator:
    """The scheme's coefficients for one material and time step, at about the cost of one step."""
    z = -dt * (material.eps2 * k2 * k2 + (STABILITY - 1) * k2 + material.sigma)
    small = z > -0.5
    safe = xp.where(small, -1.0, z)
    series = xp.zeros_like(z)
    for term in reversed(SERIES):  # (e^z - 1 - z) / z^2 without cancellation
        series = term + z * series
    phi2 = xp.where(small, series, (xp.expm1(safe) - safe) / safe**2)
    phi1 = 1 + z * phi2
    kind = k2.dtype
    return Propagator(
        xp.exp(z).astype(kind), (-dt * k2 * phi1).astype(kind), (-dt * k2 * phi2).astype(kind)
    )


def evolve(xp: Namespace, field: Array, step: Propagator, mean: float, steps: int) -> Array:
    """``field`` after ``steps`` time steps; periodic."""
    shape, axes = field.shape, tuple(range(field.ndim))

    # The modes are of c - mean, which makes Oono's term linear and the relaxation of the mean exact.
    def cubic(modes: Array) -> Array:
        c = xp.fft.irfftn(modes, shape, axes) + mean
        return xp.fft.rfftn(c * (c * c - STABILITY))

    def advance(modes: Array) -> Array:
        now = cubic(modes)
        ahead = step.decay * modes + step.first * now
        return ahead + step.second * (cubic(ahead) - now)

    modes = repeat(xp, steps, advance, xp.fft.rfftn(field - mean))
    return (xp.fft.irfftn(modes, shape, axes) + mean).astype(field.dtype)


def mirrored(xp: Namespace, field: Array) -> Array:
    """The even extension of a field with zero-flux walls: periodic, twice as long along each axis."""
    for axis in range(field.ndim):
        field = xp.concatenate([field, xp.flip(field, axis)], axis)
    return field


def energy(xp: Namespace, field: Array, k2: Array, material: Coefficients, mean: float) -> Array:
    """Free energy per volume, which falls at fixed coefficients while the mean of c is ``mean``."""
    power = mode_power(xp, field)
    known = xp.where(k2 > 0, k2, 1.0)
    kernel = material.eps2 * k2 + material.sigma * xp.where(k2 > 0, 1 / known, 0.0)
    square = field * field
    return xp.mean(square * (square / 4 - 0.5)) + xp.sum(kernel * power) / 2


def mode_power(xp: Namespace, field: Array) -> Array:
    """|c_k|^2 in the layout of rfftn, including the modes that rfftn omits; sums to mean(c^2)."""
    modes = xp.fft.rfftn(field) / field.size
    return (modes.real**2 + modes.imag**2) * mirror_counts(field.shape, field.dtype)


def mirror_counts(shape: tuple[int, ...], dtype: DTypeLike = float) -> np.ndarray:
    """How many modes an entry of rfftn's layout represents: 2 with its mirror image, else 1."""
    counts = np.full(shape[-1] // 2 + 1, 2, dtype)
    counts[0] = 1.0
    if shape[-1] % 2 == 0:
        counts[-1] = 1.0
    return counts
