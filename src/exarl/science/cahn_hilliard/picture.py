"""A picture of the state of ExaCH."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from exarl.science.figure import new_figure, to_rgb

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from exarl.science.cahn_hilliard.functions import Recipe


def draw(
    field: np.ndarray,
    spectrum: np.ndarray,
    target: np.ndarray | None,
    path: np.ndarray,
    limits: tuple[float, float],
    recipe: Recipe,
) -> np.ndarray:
    """Field, spectrum and path of the control side by side, [height, width, 3] bytes."""
    figure = new_figure(10.5, 3.2)
    left, middle, right = figure.subplots(1, 3)
    _show(left, field)
    middle.plot(np.arange(1, len(spectrum) + 1), spectrum, label="now")
    if target is not None:
        middle.plot(np.arange(1, len(target) + 1), target, "--", label="target")
        middle.legend()
    middle.set(xlabel="wave number (modes of the box)", ylabel="spectrum", ylim=(0, None))
    right.plot(path, drawstyle="steps-pre")
    margin = 0.03 * (limits[1] - limits[0])
    right.set(xlabel="step", ylabel=f"{recipe.name} (reduced units)", xlim=(0, recipe.steps))
    right.set_ylim(limits[0] - margin, limits[1] + margin)
    return to_rgb(figure)


def _show(axes: Axes, field: np.ndarray) -> None:
    """Draw a 2-D field; of a 3-D one the middle layer and, above it, a vertical section."""
    if field.ndim == 3:
        gap = np.full((1, field.shape[2]), np.nan)
        field = np.concatenate([field[len(field) // 2], gap, field[:, field.shape[1] // 2]])
        axes.set(yticks=[], ylabel="middle layer, vertical section")
    else:
        axes.set_ylabel("y (grid points)")
    axes.set(xlabel="x (grid points)", title="composition m")
    image = axes.imshow(field, cmap="RdBu_r", vmin=-1, vmax=1, origin="lower")
    assert axes.figure is not None
    axes.figure.colorbar(image, ax=axes, ticks=[-1, 0, 1], shrink=0.9)
