"""The start and the target of an episode: given, generated or described."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from exarl.envs.functional import split, uniform
from exarl.science.cahn_hilliard.model import Model
from exarl.science.cahn_hilliard.structure import ORDER, Structure
from exarl.types import Array, Namespace, Rng

PUBLISHED_POINTS = 128
"""Grid points of the published structure files, whose wave numbers are per pixel."""
SAMPLES = 4
"""Number of morphologies whose mean structure is a generated target."""


@dataclass(frozen=True)
class Start:
    """The first field: ``base`` (or uniform) + uniform noise + a guide of stripes in a random place."""

    noise: float
    guide: float = 0.0
    stripes: int = 0  # periods of the guide in the box
    axis: int = -1  # along which the guide varies
    base: np.ndarray | None = None

    def field(self, xp: Namespace, model: Model, rng: Rng) -> Array:
        """A first field; the noise does not change its mean."""
        place, rough = split(rng, 2)
        noise = xp.asarray(uniform(rough, model.shape, -self.noise, self.noise))
        field = noise - xp.mean(noise) + (model.mean if self.base is None else self.base)
        if self.guide and self.base is None:
            n = model.shape[self.axis]
            phase = self.stripes * np.arange(n) / n + uniform(place)
            wave = self.guide * xp.cos(2 * np.pi * phase)
            field = field + (wave if self.axis == -1 else wave[:, None])
        return field.astype(model.dtype)


@dataclass(frozen=True)
class Described:
    """A target given by its name: one entry of the order, at full contrast."""

    index: int
    spectrum: None = None

    def distance(self, xp: Namespace, structure: Structure) -> Array:
        """1 for a uniform field; 0 for full order of this kind with pure phases."""
        return 1 - structure.order[self.index] * structure.contrast

    def reached(self, xp: Namespace, structure: Structure, tolerance: float) -> Array:
        """Whether the distance is below the tolerance."""
        return self.distance(xp, structure) < tolerance


@dataclass(frozen=True)
class Matched:
    """A target given by its spectrum."""

    spectrum: np.ndarray

    def distance(self, xp: Namespace, structure: Structure) -> Array:
        """Mean square error over the target's mean square: 1 for a uniform field, 0 at the target."""
        miss = structure.spectrum - self.spectrum
        return xp.mean(miss * miss) / np.mean(np.square(self.spectrum))

    def reached(self, xp: Namespace, structure: Structure, tolerance: float) -> Array:
        """Whether the error of every shell is below the tolerance, in units of the target's peak."""
        miss = xp.abs(structure.spectrum - self.spectrum)
        return xp.max(miss) < tolerance * np.max(np.abs(self.spectrum))


Target = Described | Matched


def read_field(given: ArrayLike | Path, model: Model, what: str) -> np.ndarray:
    """A field from an array, a nested list, an .npy or a text file; ValueError if it does not fit."""
    values = _load(given, what) if isinstance(given, str | Path) else np.asarray(given)
    if values.dtype.kind not in "fiu":
        raise ValueError(f"{what} is no array of numbers")
    if values.shape not in (model.shape, (np.prod(model.shape),)):
        raise ValueError(f"{what} has shape {values.shape}, not {model.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{what} contains numbers that are not finite")
    return values.reshape(model.shape).astype(model.dtype)


def make_target(given: ArrayLike, model: Model, start: Start, path: np.ndarray) -> Target:
    """The target for ``given``, a name, a file or a field; ``path`` is the control path of "generated".

    ValueError when it does not fit the model.
    """
    if isinstance(given, str):
        if given in ("vertical", "horizontal", "isotropic"):
            return Described(ORDER[len(model.shape)].index(given))
        if given == "generated":
            return Matched(_generated(model, start, path))
        values = _load(given, "target")
        if values.ndim == 2 and len(values) == 2:
            return Matched(_published(values, model))
    structure = model.structure(np, read_field(given, model, "target"))
    if not np.max(structure.spectrum) > 1e-6:
        raise ValueError("target is a uniform field: it has no structure to match")
    return Matched(np.asarray(structure.spectrum))


def control_path(points: Sequence[float], steps: int, model: Model) -> np.ndarray:
    """A control path through equally spaced ``points``, with one value per step."""
    if not points or not all(model.low <= point <= model.high for point in points):
        raise ValueError(
            f"target_path must hold values between {model.low} and {model.high}, not {points}"
        )
    return np.interp(np.linspace(0, 1, steps), np.linspace(0, 1, len(points)), points)


def _generated(model: Model, start: Start, path: np.ndarray) -> np.ndarray:
    spectra = []
    for seed in range(SAMPLES):
        field = start.field(np, model, np.random.default_rng(seed))
        for control in path.astype(model.dtype):
            field = model.advance(np, field, control)
        spectra.append(model.structure(np, field).spectrum)
    mean: np.ndarray = np.mean(spectra, axis=0).astype(model.dtype)
    return mean


def _published(rows: np.ndarray, model: Model) -> np.ndarray:
    """A published structure vector (q in rad/pixel; q times mean |FFT|) in the model's shells."""
    if len(model.shape) != 2 or max(model.lengths) != 1:
        raise ValueError("a structure file belongs to the box of 750 nm: set box to 750")
    q, intensity = rows
    shells = np.arange(1, model.shells + 1)
    wanted = 2 * np.pi * shells / PUBLISHED_POINTS
    # Published: q per pixel and |FFT| over all points. Here: 2 pi times the shell and amplitudes.
    spectrum: np.ndarray = (np.interp(wanted, q, intensity) / PUBLISHED_POINTS).astype(model.dtype)
    return spectrum


def _load(path: str | Path, what: str) -> np.ndarray:
    try:
        if str(path).endswith(".npy"):
            return np.asarray(np.load(path, allow_pickle=False))
        return np.loadtxt(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{what} '{path}' cannot be read: {error}") from error
