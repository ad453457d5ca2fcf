"""Where an episode begins and what it is to reach: given, generated or described."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from exarl.envs.functional import split, uniform
from exarl.science.cahn_hilliard.model import Model
from exarl.science.cahn_hilliard.structure import ORDER, Structure

PUBLISHED_POINTS = 128
"""Grid of the published structure files, in whose pixels they count wave numbers."""
SAMPLES = 4
"""Morphologies whose structure is averaged to a generated target."""


@dataclass(frozen=True)
class Start:
    """The first field: ``base`` (or uniform) + uniform noise + a guide of stripes in a random place."""

    noise: float
    guide: float = 0.0
    stripes: int = 0  # periods of the guide in the box
    axis: int = -1  # along which the guide varies
    base: np.ndarray | None = None

    def field(self, xp: ModuleType, model: Model, rng: Any) -> Any:
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
    """A target in a word: one entry of the order, at full contrast."""

    index: int
    spectrum: None = None

    def distance(self, xp: ModuleType, structure: Structure) -> Any:
        """1 for a blank field; 0 where the word holds entirely and the phases are pure."""
        return 1 - structure.order[self.index] * structure.contrast

    def reached(self, xp: ModuleType, structure: Structure, tolerance: float) -> Any:
        """Whether the distance is below the tolerance."""
        return self.distance(xp, structure) < tolerance


@dataclass(frozen=True)
class Matched:
    """A spectrum that is to be matched."""

    spectrum: np.ndarray

    def distance(self, xp: ModuleType, structure: Structure) -> Any:
        """Mean square error over the target's mean square: 1 for a blank field, 0 at the target."""
        miss = structure.spectrum - self.spectrum
        return xp.mean(miss * miss) / np.mean(np.square(self.spectrum))

    def reached(self, xp: ModuleType, structure: Structure, tolerance: float) -> Any:
        """Whether no shell is off by more than the tolerance, in units of the target's peak."""
        miss = xp.abs(structure.spectrum - self.spectrum)
        return xp.max(miss) < tolerance * np.max(np.abs(self.spectrum))


Target = Described | Matched


def read_field(given: Any, model: Model, what: str) -> np.ndarray:
    """A field from an array, a nested list, an .npy file or a file of numbers; ValueError if unfit."""
    values = _load(given, what) if isinstance(given, str | Path) else np.asarray(given)
    if values.dtype.kind not in "fiu":
        raise ValueError(f"{what} is no array of numbers")
    if values.shape not in (model.shape, (np.prod(model.shape),)):
        raise ValueError(f"{what} has shape {values.shape}, not {model.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{what} holds numbers that are not finite")
    return values.reshape(model.shape).astype(model.dtype)


def make_target(given: Any, model: Model, start: Start, path: np.ndarray) -> Target:
    """The target that ``given`` describes, names or holds; ``path`` is that of a generated one."""
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
    return Matched(structure.spectrum)


def control_path(points: Sequence[float], steps: int, model: Model) -> np.ndarray:
    """A path through equally spaced ``points``, one value for each of ``steps``."""
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
    """A published structure vector (q in rad/pixel; q times the mean of |FFT|) in our shells."""
    if len(model.shape) != 2 or max(model.lengths) != 1:
        raise ValueError("a structure file belongs to the box of 750 nm: set box to 750")
    q, intensity = rows
    shells = np.arange(1, model.shells + 1)
    wanted = 2 * np.pi * shells / PUBLISHED_POINTS
    # q per pixel and |FFT| over all points; ours are 2 pi times the shell and amplitudes.
    spectrum: np.ndarray = (np.interp(wanted, q, intensity) / PUBLISHED_POINTS).astype(model.dtype)
    return spectrum


def _load(path: str | Path, what: str) -> np.ndarray:
    try:
        if str(path).endswith(".npy"):
            return np.asarray(np.load(path, allow_pickle=False))
        return np.loadtxt(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{what} '{path}' cannot be read: {error}") from error
