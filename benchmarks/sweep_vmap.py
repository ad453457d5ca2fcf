"""A sweep as one compiled program against the same sweep by processes: PPO CartPole, learning rates.

    python benchmarks/sweep_vmap.py [--members 512] [--steps 20000] [--trials 4] [--jobs 1 2]

One ``exarl train --workflow fused --sweep ...`` trains all members at once. Beside it a few single
trials, the same program with one learning rate each, are run by processes: one after another, and
several at a time. Their total for all members is extrapolated from the seconds a trial, the start of
its process included, with a warm compilation cache, which a sweep has after its first trial. What they
reach is compared with the members of the same learning rate.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

LOW, HIGH = 1e-4, 1e-1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--members", type=int, default=512)
    parser.add_argument("--steps", type=int, default=20_000, help="of each member")
    parser.add_argument("--trials", type=int, default=4, help="single ones that are run")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2], help="trials at a time")
    parser.add_argument("--n_envs", type=int, default=8)
    parser.add_argument("--hidden", default="[32,32]")
    options = parser.parse_args()
    common = [
        *("--agent", "PPO-v0", "--env", "CartPole-v1", "--workflow", "fused", "--seed", "1"),
        *("--n_envs", str(options.n_envs), "--block_steps", "32", "--epochs", "4"),
        *("--minibatches", "4", "--hidden", options.hidden, "--activation", "tanh"),
        *("--total_steps", str(options.steps), "--checkpoint_interval", "1000000"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        compare(common, options, Path(folder))


def compare(common: list[str], options: argparse.Namespace, folder: Path) -> None:
    members = options.members
    whole, compiling, rewards = population(common, members, folder)
    rates = list(rewards)
    chosen = [rates[i] for i in np.linspace(0, members - 1, options.trials).round().astype(int)]
    cold, _, _ = single(common, chosen[0], folder / "cold", folder)  # fills the cache
    rows = [("one program, all of it", whole, 1.0, ""), ("- of it compiling", compiling, None, "")]
    found: dict[float, float] = {}
    for jobs in options.jobs:
        started = time.monotonic()
        with ThreadPoolExecutor(jobs) as pool:
            ended = list(
                pool.map(
                    lambda rate, jobs=jobs: single(common, rate, folder / f"{jobs}x{rate}", folder),
                    chosen,
                )
            )
        each = (time.monotonic() - started) / len(chosen)
        found |= dict(zip(chosen, (reward for _, _, reward in ended), strict=True))
        training = float(np.mean([seconds for _, seconds, _ in ended]))
        note = f"{each:.1f} s a trial, of it {training:.1f} s after compiling"
        total = (cold - each) + members * each if jobs == 1 else members * each
        rows.append((f"by processes, {jobs} at a time (extrapolated)", total, total / whole, note))
    print(f"{members} learning rates x {options.steps:,} steps, {options.n_envs} environments each")
    print(f"first trial of all, nothing compiled before: {cold:.1f} s\n")
    print("| | seconds | against one program | |\n|---|---|---|---|")
    for name, seconds, ratio, note in rows:
        print(f"| {name} | {seconds:,.1f} | {'' if ratio is None else f'{ratio:.1f}'} | {note} |")
    best = max(rewards, key=lambda rate: np.nan_to_num(rewards[rate], nan=-np.inf))
    print(f"\nbest learning rate {best:.3g}: mean return {rewards[best]:.0f}")
    print(f"diverged: {int(np.isnan(list(rewards.values())).sum())} of {members}")
    print("the same learning rate, in the program and alone: ", end="")
    print(", ".join(f"{r:.2g}: {rewards[r]:.1f} and {found[r]:.1f}" for r in chosen))


def train(words: list[str], run: Path, folder: Path) -> tuple[float, float, float]:
    """Seconds from start to end of an ``exarl train``, those until its first row, and after it."""
    command = [sys.executable, "-m", "exarl", "train", *words, "--run_dir", str(run)]
    env = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder / "cache")}
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    seconds = time.monotonic() - started
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    rows = [json.loads(line) for line in (run / "result.jsonl").read_text().splitlines()]
    first = rows[0]["time_total_s"]
    return seconds, first, rows[-1]["time_total_s"] - first


def population(
    common: list[str], members: int, folder: Path
) -> tuple[float, float, dict[float, float]]:
    """Seconds of all members as one program, those of compiling, and what each learning rate got."""
    run = folder / "population"
    sweep = f"learning_rate={LOW}:{HIGH}:{members}:log"
    seconds, first, _ = train([*common, "--sweep", sweep], run, folder)
    with (run / "population.csv").open() as file:
        rows = list(csv.DictReader(file))
    return seconds, first, {float(row["learning_rate"]): float(row["reward_mean"]) for row in rows}


def single(common: list[str], rate: float, run: Path, folder: Path) -> tuple[float, float, float]:
    """Seconds of one trial, those after its first row, and its mean return."""
    seconds, _, later = train([*common, "--learning_rate", repr(rate)], run, folder)
    reward = json.loads((run / "summary.json").read_text())["last_reward_mean"]
    return seconds, later, reward


if __name__ == "__main__":
    main()
