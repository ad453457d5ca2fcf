"""What 20 recorded episodes of the Booster's regulator save SAC, in steps to the regulator's level.

    python -m benchmarks.science.prior [--seeds 1001 ...] [--ways ...] [--jobs 1] [--out DIR]

Records 20 episodes of the regulator with 'exarl evaluate --record'. Then trains SAC on ExaBooster-v0
without and with them (``prior_data``, ``clone``), with the packaged settings and with a lower
temperature at the start. Each run is evaluated every 250 steps or so on the same 10 episodes. The
result is the first evaluation whose mean reaches that of the regulator in these episodes.
Runs whose result stands in DIR are not made again.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from exarl.envs.registration import register_all
from exarl.learning.exploration import EVALUATION, episode_seed
from exarl.science.booster.env import regulate

ENV, EPISODES, EVERY = "ExaBooster-v0", 20, 250
PRIOR = ("--prior_data", "{data}", "--clone", "2000", "--learning_starts", "0")
WAYS: dict[str, tuple[int, tuple[str, ...]]] = {
    "packaged, alone": (10_000, ()),
    "packaged, prior data": (5_000, PRIOR),
    "alpha 0.01, alone": (4_000, ("--alpha", "0.01")),
    "alpha 0.01, prior data": (1_500, ("--alpha", "0.01", *PRIOR)),
}
"""How many steps are trained, and the words that say how."""


class Regulator:
    """The published regulator of the Booster as a controller for 'exarl evaluate'."""

    def __init__(self, env: Any) -> None:
        self._env = env.unwrapped

    def act(self, observation: np.ndarray) -> Any:
        env = self._env
        return env.action_for(regulate(env.functions.state_info(env.state)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1001, 1002, 1003, 1004, 1005])
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--out", type=Path, default=Path("prior_results"))
    options = parser.parse_args()
    register_all()
    options.out.mkdir(parents=True, exist_ok=True)
    data = options.out / "regulator"
    if not data.exists():
        words = ("--episodes", str(EPISODES), "--record", str(data))
        exarl("evaluate", "--env", ENV, "--agent", "benchmarks.science.prior:Regulator", *words)
    tasks = [(way, seed) for seed in options.seeds for way in options.ways]
    with ThreadPoolExecutor(options.jobs) as pool:
        made = list(pool.map(lambda task: run(*task, data, options), tasks))
    print("| seed | the regulator | " + " | ".join(options.ways) + " |")
    print("|---" * (2 + len(options.ways)) + "|")
    found = dict(zip(tasks, made, strict=True))
    for seed in options.seeds:
        level = regulator_level(seed)
        steps = [first_at(found[way, seed], level) for way in options.ways]
        shown = " | ".join("not reached" if n is None else f"{n:,}" for n in steps)
        print(f"| {seed} | {level:.2f} | {shown} |")


def regulator_level(seed: int) -> float:
    """The regulator's mean return in the episodes that evaluations of a run with this seed play."""
    env: Any = gymnasium.make(ENV)
    returns = []
    for number in range(10):
        _, info = env.reset(seed=episode_seed(seed, 1, number, EVALUATION))
        total, ended = 0.0, False
        while not ended:
            action = env.unwrapped.action_for(regulate(info))
            _, reward, terminated, truncated, info = env.step(action)
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    return float(np.mean(returns))


def run(way: str, seed: int, data: Path, options: argparse.Namespace) -> Path:
    """One training; its directory."""
    folder: Path = options.out / f"{way.replace(',', '').replace(' ', '_')}_{seed}"
    if not (folder / "summary.json").exists():
        steps, words = WAYS[way]
        exarl(
            *("train", "--agent", "SAC-v0", "--env", ENV, "--seed", str(seed)),
            *("--total_steps", str(steps), "--eval_interval", str(EVERY)),
            *("--run_dir", str(folder), *(word.format(data=data) for word in words)),
        )
    return folder


def first_at(run: Path, level: float) -> int | None:
    """The steps of the first evaluation that reaches a level."""
    with open(run / "evaluations.csv", newline="") as file:
        for row in csv.DictReader(file):
            if float(row["reward_mean"]) >= level:
                return int(float(row["timesteps_total"]))
    return None


def exarl(*words: str) -> None:
    """The command ``exarl``, in this process's environment and on one core."""
    env = {**os.environ, "NPROC": "1"}
    subprocess.run([sys.executable, "-m", "exarl", *words], check=True, env=env, stdout=sys.stderr)


if __name__ == "__main__":
    main()
