"""Water clusters in xyz files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from exarl.science.water_cluster.rigid import fitted


def read_clusters(path: str, n: int, body: np.ndarray) -> np.ndarray:
    """The coordinates [frames, 7 n] of a file's clusters of ``n`` molecules, made rigid like ``body``.

    Atoms may have any order; each O takes its two nearest H. ValueError for a file that does not fit.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the clusters of {path}: {error}") from error
    frames = []
    while lines and any(line.strip() for line in lines):
        try:
            count = int(lines[0])
            rows = [line.split() for line in lines[2 : count + 2]]
            kinds = [row[0].upper() for row in rows]
            places = np.array([row[1:4] for row in rows], float).reshape(-1, 3)
        except (ValueError, IndexError) as error:
            raise ValueError(f"{path} is no xyz file: {error}") from error
        if sorted(kinds) != ["H"] * 2 * n + ["O"] * n:
            raise ValueError(f"{path} must contain clusters of {n} H2O, not of {''.join(kinds)}")
        frames.append(fitted(_molecules(np.array(kinds), places), body))
        lines = lines[count + 2 :]
    if not frames:
        raise ValueError(f"{path} contains no cluster")
    return np.array(frames)


def write_cluster(path: str | Path, atoms: np.ndarray, comment: str = "") -> None:
    """Write ``atoms`` [n, 3, 3] to a file; the comment becomes its second line."""
    places = np.asarray(atoms).reshape(-1, 3)
    rows = [
        f"{kind} {x:.8f} {y:.8f} {z:.8f}"
        for kind, (x, y, z) in zip("OHH" * len(atoms), places, strict=True)
    ]
    Path(path).write_text("\n".join([str(len(places)), comment, *rows, ""]), encoding="utf-8")


def _molecules(kinds: np.ndarray, places: np.ndarray) -> np.ndarray:
    """[n, 3, 3]: every O with its two nearest H."""
    oxygens, hydrogens = places[kinds == "O"], places[kinds == "H"]
    distances = np.linalg.norm(oxygens[:, None] - hydrogens[None], axis=2)
    nearest = np.sort(np.argsort(distances, 1)[:, :2], 1)  # the two in the file's order
    if len(np.unique(nearest)) != len(hydrogens):
        raise ValueError("its hydrogens cannot be assigned to molecules")
    return np.concatenate([oxygens[:, None], hydrogens[nearest]], 1)
