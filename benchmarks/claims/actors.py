"""C11 and C13: seconds until a reward is reached, with 1 to 16 actors.

    python benchmarks/claims/actors.py [--claim C11 C13] [--actors 1 2 4 8 16] [--seeds 3]

C11: DQN, ``async``, controls the cylinders of ``ExaCH3D-v0``. C13: PPO, ``async``, in
CartPole-v1 until a mean return of 475. A step also sleeps, in place of a simulation that computes on
cores of its own; so the actors need not share the cores of this machine. Printed: the median over the
seeds of the seconds and the steps from the first block to the reward, and the ratio to the smallest
number of actors.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from exarl.science.cahn_hilliard.env import ExaCH3D

PPO = [
    *("--block_steps", "256", "--epochs", "10", "--minibatches", "2", "--gamma", "0.98"),
    *("--gae_lambda", "0.9", "--learning_rate", "0.001", "--hidden", "[64,64]"),
]
DQN = [
    *("--batch_size", "128", "--epsilon_steps", "1500", "--gamma", "0.97", "--n_step", "3"),
    *("--learning_starts", "300", "--block_steps", "10", "--updates_per_step", "1"),
]
CASES: dict[str, tuple[float, list[str]]] = {
    # claim: seconds of sleep in a step, the words of the run
    "C11": (
        0.2,
        [
            *("--agent", "DQN-v0", "--env", "actors:SlowCH3D-v0"),
            *(*DQN, "--reward_window", "30", "--target_reward", "-10.8", "--total_steps", "12000"),
        ],
    ),
    "C13": (
        0.002,
        [
            *("--agent", "PPO-v0", "--env", "actors:SlowCartPole-v1", "--total_steps", "400000"),
            *(*PPO, "--reward_window", "20", "--target_reward", "475"),
        ],
    ),
}
SECONDS = "EXARL_STEP_SECONDS"


class SlowCH3D(ExaCH3D):
    """The slab, whose step takes longer."""

    def step(self, action: Any) -> Any:
        time.sleep(float(os.environ[SECONDS]))
        return super().step(action)


class SlowCartPole(CartPoleEnv):
    """CartPole whose step takes longer."""

    def step(self, action: Any) -> Any:
        time.sleep(float(os.environ[SECONDS]))
        return super().step(action)


gymnasium.register("SlowCH3D-v0", SlowCH3D)
gymnasium.register("SlowCartPole-v1", SlowCartPole, max_episode_steps=500)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--claim", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--step_seconds", type=float, help="sleep of a step")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    for claim in options.claim:
        seconds, words = CASES[claim]
        print(
            f"{claim}: actors | seconds, median [range] | steps, median | reached | times as fast"
        )
        alone = None
        for actors in options.actors:
            pause = seconds if options.step_seconds is None else options.step_seconds
            runs = [train(actors, seed, pause, words) for seed in seeds]
            times = [run["wall_s"] for run in runs]
            alone = alone or statistics.median(times)
            print(
                f"{actors:3d} | {statistics.median(times):.1f} [{min(times):.1f}, {max(times):.1f}]"
                f" | {statistics.median(run['timesteps_total'] for run in runs):,.0f}"
                f" | {sum(run['reason'] == 'target_reward' for run in runs)} of {len(runs)}"
                f" | {alone / statistics.median(times):.2f}",
                flush=True,
            )


def train(actors: int, seed: int, pause: float, words: list[str]) -> dict[str, Any]:
    """The summary of a run."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        subprocess.run(
            [
                *(sys.executable, "-m", "exarl", "train", "--procs", str(actors + 1)),
                *("--workflow", "async", "--seed", str(seed), "--run_dir", str(run), *words),
            ],
            check=True,
            capture_output=True,
            cwd=Path(__file__).parent,
            env={**os.environ, SECONDS: str(pause), "NPROC": "1"},
        )
        return json.loads((run / "summary.json").read_text())  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
