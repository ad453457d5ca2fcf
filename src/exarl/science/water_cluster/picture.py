"""A cluster as an image."""

from __future__ import annotations

import numpy as np

from exarl.science.figure import new_figure, to_rgb


def draw(atoms: np.ndarray, energy: float, target: float | None) -> np.ndarray:
    """``atoms`` [n, 3, 3] seen along the cluster's shortest axis, with hydrogen bonds: RGB bytes."""
    centred = atoms - atoms[:, 0].mean(0)
    _, _, axes = np.linalg.svd(centred[:, 0], full_matrices=True)
    seen = centred @ axes.T  # x and y of the page, and the depth
    figure = new_figure(4.8, 4.8)
    page = figure.subplots()
    for hydrogen, oxygen in _bonds(atoms):
        ends = np.array([seen[hydrogen], seen[oxygen]])
        page.plot(ends[:, 0], ends[:, 1], ":", color="steelblue", lw=1.5, zorder=ends[:, 2].mean())
    for molecule in seen:
        for hydrogen in molecule[1:]:
            arm = np.array([molecule[0], hydrogen])
            page.plot(arm[:, 0], arm[:, 1], color="grey", lw=4, zorder=arm[:, 2].mean())
        for (x, y, depth), colour, size in zip(
            molecule, ("firebrick", "white", "white"), (420, 130, 130), strict=True
        ):
            page.scatter(x, y, size, colour, edgecolors="black", zorder=depth)
    reach = np.abs(seen[:, :, :2]).max() + 0.8
    page.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    page.plot([-reach + 0.3, -reach + 1.3], [-reach + 0.3] * 2, color="black", lw=2)
    page.text(-reach + 0.8, -reach + 0.4, "1 Å", ha="center", va="bottom")
    page.axis("off")
    known = "" if target is None else f" (lowest known {target:.2f})"
    page.set_title(f"energy {energy:.2f} kJ/mol{known}")
    return to_rgb(figure)


def _bonds(atoms: np.ndarray) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Hydrogen and oxygen, each as (molecule, atom), of every hydrogen bond."""
    reach = np.linalg.norm(atoms[:, 1:, None] - atoms[None, None, :, 0], axis=3)
    found = np.argwhere(
        (reach < 2.5) & (np.arange(len(atoms)) != np.arange(len(atoms))[:, None, None])
    )
    return [((i, h + 1), (j, 0)) for i, h, j in found.tolist()]
