"""Basin hopping with the environment's moves, as a baseline without learning."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exarl.science.water_cluster.functions import MOVES, REACHED, WaterCluster, Waters


class SearchResult(NamedTuple):
    """The lowest cluster of a search, and the number of relaxations until it was found."""

    cluster: Waters
    relaxations: int


def basin_hopping(
    functions: WaterCluster,
    rng: np.random.Generator,
    relaxations: int,
    *,
    temperature: float = 3.0,
    patience: int = 150,
) -> SearchResult:
    """Make random moves, accept each by the Metropolis rule, and restart after ``patience`` moves
    without a new minimum (Wales and Doye, J. Phys. Chem. A 101 (1997) 5111).

    ``temperature`` is k T in kJ/mol. The search ends at the target of ``functions`` or after
    ``relaxations`` relaxations.
    """
    best: SearchResult | None = None
    made = 0
    while made < relaxations:
        now = lowest = functions.initial(rng)
        made, since = made + 1, made + 1
        while True:
            if best is None or lowest.energy < best.cluster.energy:
                best = SearchResult(lowest, made)
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


def _reached(functions: WaterCluster, cluster: Waters) -> bool:
    return functions.target is not None and bool(cluster.energy < functions.target + REACHED)
