"""Basin hopping with the environment's own moves: what a search without learning finds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from exarl.science.water_cluster.functions import MOVES, REACHED, Cluster, WaterCluster


class Found(NamedTuple):
    """The lowest cluster of a search, and the relaxations it took to find it."""

    cluster: Cluster
    relaxations: int


def basin_hopping(
    functions: WaterCluster,
    rng: np.random.Generator,
    relaxations: int,
    *,
    temperature: float = 3.0,
    patience: int = 150,
) -> Found:
    """Make random moves, keep each as Metropolis does, and start afresh after ``patience`` moves
    without a new low (Wales and Doye, J. Phys. Chem. A 101 (1997) 5111).

    ``temperature`` is k T in kJ/mol. The search ends at the target of ``functions`` or after so many
    ``relaxations``.
    """
    best: Found | None = None
    made = 0
    while made < relaxations:
        now = lowest = functions.initial(rng)
        made, since = made + 1, made + 1
        while True:
            if best is None or lowest.energy < best.cluster.energy:
                best = Found(lowest, made)
            if made >= relaxations or made - since > patience or _reached(functions, lowest):
                break
            action = int(rng.integers(MOVES**2 * functions.n))
            new = functions.transition(now, action, rng)
            made += 1
            if rng.random() < np.exp(min(0.0, float(now.energy - new.energy)) / temperature):
                now = new
            if new.energy < lowest.energy - REACHED:
                lowest, since = new, made
        if _reached(functions, lowest):
            break
    assert best is not None, "at least one relaxation"
    return best


def _reached(functions: WaterCluster, cluster: Any) -> bool:
    return functions.target is not None and bool(cluster.energy < functions.target + REACHED)
