"""Draw how a run of annealing went, and what its policy does in the same episodes as the rules.

python picture.py RUN [--episodes 10] [--output annealing.png]
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import annealing
import matplotlib.pyplot as plt
import numpy as np

import exarl


def column(table: Path, name: str) -> np.ndarray:
    with table.open(newline="") as file:
        return np.array([float(row[name]) for row in csv.DictReader(file)])


def played(policy: Any, episodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Energy of the lowest minimum [episodes, steps + 1] and temperatures [episodes, steps]."""
    env, energies, temperatures = annealing.Annealing(), [], []
    for seed in range(episodes):
        seen, info = env.reset(seed=seed)
        lowest, chosen, over = [info["energy"]], [], False
        while not over:
            seen, _, over, _, info = env.step(policy.act(seen))
            lowest.append(info["energy"])
            chosen.append(info["temperature"])
        energies.append(lowest)
        temperatures.append(chosen)
    env.close()
    return np.array(energies), np.array(temperatures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path("annealing.png"))
    given = parser.parse_args()
    policies = {
        "PPO": exarl.load(given.run),
        "always 0.3": annealing.Constant(),
        "cooling": annealing.Cooling(),
        "always 0.05": annealing.Quench(),
    }
    figure, (curve, energy, heat) = plt.subplots(1, 3, figsize=(12, 3.6), constrained_layout=True)
    table = given.run / "progress.csv"
    steps = column(table, "timesteps_total")
    low, high = (column(table, f"episode_reward_{name}") for name in ("q25", "q75"))
    curve.fill_between(steps, low, high, alpha=0.2)
    curve.plot(steps, column(table, "episode_reward_mean"), "o-", ms=4)
    curve.set(xlabel="steps", ylabel="energy gained, last 100 episodes")
    for name, policy in policies.items():
        energies, temperatures = played(policy, given.episodes)
        energy.plot(energies.mean(0), label=name)
        heat.plot(np.arange(1, 21), temperatures.mean(0), label=name)
    energy.set(xlabel="step of the episode", ylabel="lowest energy, mean")
    heat.set(xlabel="step of the episode", ylabel="temperature, mean")
    energy.legend()
    figure.savefig(given.output, dpi=90)


if __name__ == "__main__":
    main()
