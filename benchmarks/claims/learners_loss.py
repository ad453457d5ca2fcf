"""The same global batch on 1, 2 and 4 learners: is the loss curve the same?

    python benchmarks/claims/learners_loss.py [--learners 1 2 4] [--seeds 1 2 3] [--tolerance 0.15]

DQN (async, 4 actors) learns the rewards of an environment in which nothing that is learned changes
what is seen: random observations, reward = one of them with the action's sign plus noise, gamma 0,
random actions. The loss falls to the noise's floor, so curves can be compared at each number of
updates. Each is averaged over 4 equal spans of updates, and over the seeds. Printed: the largest
relative difference to the curve of the first number of learners, beside the spread of its seeds. The
exit code is 0 only if all differences are within the tolerance.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

SPANS = 4  # long against the updates of a round, over which a row averages
ACTORS = 4
NOISE = 0.5


class Noisy(gymnasium.Env[np.ndarray, int]):
    """Independent observations; the reward is the first number, turned by the action, plus noise."""

    observation_space = gymnasium.spaces.Box(-10, 10, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = float(self._seen[0]) * (2 * action - 1) + NOISE * self.np_random.normal()
        return self._look(), reward, False, False, {}

    def _look(self) -> np.ndarray:
        self._seen = self.np_random.normal(size=4).clip(-10, 10).astype(np.float32)
        return self._seen


gymnasium.register("Noisy-v0", Noisy, max_episode_steps=50)


def curve(learners: int, seed: int, updates: int, rate: float) -> np.ndarray:
    """Mean loss in each span of updates."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        subprocess.run(
            [
                *(sys.executable, "-m", "exarl", "train", "--procs", str(learners + ACTORS)),
                *("--learner_procs", str(learners), "--workflow", "async", "--seed", str(seed)),
                *("--env", "learners_loss:Noisy-v0", "--run_dir", str(run)),
                *("--gamma", "0", "--loss", "mse", "--epsilon_decay", "1", "--reward_scale", "1"),
                *("--batch_size", "256", "--hidden", "[32]", "--learning_rate", str(rate)),
                *("--optimizer", "sgd"),  # Adam would hide a gradient of the wrong size
                *("--learning_rate_updates", "0", "--updates_per_step", "0.25"),
                *("--learning_starts", "512", "--total_steps", str(512 + 4 * updates + 512)),
            ],
            env={**os.environ, "PYTHONPATH": path},
            check=True,
            capture_output=True,
        )
        text = (run / "result.jsonl").read_text(encoding="utf-8")
    rows = [row for row in map(json.loads, text.splitlines()) if "loss" in row]
    done = np.array([0, *(row["updates_total"] for row in rows)])
    sums = np.concatenate([[0], np.cumsum(np.diff(done) * [row["loss"] for row in rows])])
    edges = np.linspace(0, updates, SPANS + 1)
    return np.diff(np.interp(edges, done, sums)) / np.diff(edges)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--learners", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--updates", type=int, default=800)
    parser.add_argument("--rate", type=float, default=0.02, help="step size of the descent")
    parser.add_argument("--tolerance", type=float, default=0.15)
    options = parser.parse_args()
    cases = [(learners, seed) for learners in options.learners for seed in options.seeds]
    with ThreadPoolExecutor(2) as pool:  # most of a run is starting JAX
        found = list(pool.map(lambda case: curve(*case, options.updates, options.rate), cases))
    print("learners  loss in the first and last span  apart from the first line  seeds apart")
    alone, worst = None, 0.0
    for learners in options.learners:
        own = [losses for case, losses in zip(cases, found, strict=True) if case[0] == learners]
        curves = np.array(own)
        mean = curves.mean(0)
        alone = mean if alone is None else alone
        apart = float(np.abs(mean / alone - 1).max())
        spread = float((np.ptp(curves, axis=0) / mean).max())
        worst = max(worst, apart)
        print(f"{learners:8d}  {mean[0]:21.4f}  {mean[-1]:8.4f}  {apart:25.1%}  {spread:11.1%}")
    return int(worst > options.tolerance)


if __name__ == "__main__":
    sys.exit(main())
