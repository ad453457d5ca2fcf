"""Seconds and relaxations until basin hopping finds the lowest known minimum of (H2O)n under TIP4P.

python benchmarks/water_minima.py [N ...] [--seeds K] [--relaxations LIMIT] [--folder OUT]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from exarl.science.water_cluster.functions import REACHED, WaterCluster, Waters
from exarl.science.water_cluster.search import basin_hopping
from exarl.science.water_cluster.tip4p import MINIMA
from exarl.science.water_cluster.xyz import write_cluster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", nargs="*", type=int, default=[2, 3, 4, 5, 6, 7, 8, 9, 10])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--relaxations", type=int, default=4000, help="maximum number of relaxations"
    )
    parser.add_argument("--folder", type=Path, help="write each lowest cluster there, xyz and png")
    given = parser.parse_args()
    print("  n    lowest known   lowest found  found by   relaxations      CPU seconds   ms each")
    for n in given.n:
        functions = WaterCluster(n)
        clusters, energies, relaxations, seconds = [], [], [], []
        for seed in range(given.seeds):
            start = time.process_time()
            found = basin_hopping(functions, np.random.default_rng(seed), given.relaxations)
            seconds.append(time.process_time() - start)
            clusters.append(found.cluster)
            energies.append(float(found.cluster.energy))
            relaxations.append(found.relaxations)
        reached = sum(energy < MINIMA[n] + REACHED for energy in energies)
        each = 1e3 * sum(seconds) / sum(relaxations) if reached == given.seeds else float("nan")
        print(
            f"{n:3d} {MINIMA[n]:15.5f} {min(energies):14.5f} {reached:5d}/{given.seeds}"
            f" {min(relaxations):8d} .. {max(relaxations):<5d}"
            f" {min(seconds):7.2f} .. {max(seconds):<7.2f} {each:7.1f}",
            flush=True,
        )
        if given.folder is not None:
            keep(given.folder, functions, clusters[int(np.argmin(energies))])


def keep(folder: Path, functions: WaterCluster, cluster: Waters) -> None:
    """The cluster as a file of coordinates and as a picture."""
    from matplotlib.image import imsave

    folder.mkdir(parents=True, exist_ok=True)
    name, energy = folder / f"water_{functions.n}", float(cluster.energy)
    write_cluster(name.with_suffix(".xyz"), functions.atoms(cluster), f"{energy:.5f} kJ/mol TIP4P")
    imsave(name.with_suffix(".png"), functions.picture(cluster))


if __name__ == "__main__":
    main()
