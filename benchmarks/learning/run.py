"""What each agent learns on seeds that no tuning has seen: return, and steps to a threshold.

    python benchmarks/learning/run.py [--only TASK ...] [--seeds 1001-1020] [--jobs 2] [--out DIR]
    python benchmarks/learning/run.py --table DIR/results.json PEERS.jsonl ... [--out DIR]

Every run is ``exarl train`` with evaluations of the greedy policy beside it. The table gives, over the
seeds, the interquartile mean (with its 95% bootstrap interval) of the returns of the last and of the
best policy in 100 episodes of other seeds, the lowest return of a last policy, how many of them reach
the threshold, and the median of the steps at which an evaluation first did. ``DIR/curves.png`` shows
the evaluations; ``DIR/results.json`` holds everything. Called again after a stop it goes on: runs whose
result stands in DIR are not made again. ``--table`` puts the results of several calls into one table;
results of ``benchmarks/peers/learning.py`` become rows beside ours, with the probability that a run of
ours ends better.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from intervals import improvement, interquartile_mean, interval

TASKS: dict[str, tuple[float, int, list[str]]] = {
    # agent/environment: threshold, steps, other words
    "DQN-v0/CartPole-v1": (475, 60_000, []),
    "QRDQN-v0/CartPole-v1": (475, 60_000, []),
    "A2C-v0/CartPole-v1": (475, 200_000, []),
    "A3C-v0/CartPole-v1": (475, 200_000, ["--workflow", "async", "--procs", "3"]),
    "PPO-v0/CartPole-v1": (475, 100_000, []),
    "DDPG-v0/Pendulum-v1": (-200, 12_000, []),
    "TD3-v0/Pendulum-v1": (-200, 12_000, []),
    "SAC-v0/Pendulum-v1": (-200, 12_000, []),
    "TQC-v0/Pendulum-v1": (-200, 12_000, []),
    "PPO-v0/Pendulum-v1": (-200, 200_000, []),
    "DQN-v0/Acrobot-v1": (-100, 100_000, []),
    "PPO-v0/Acrobot-v1": (-100, 300_000, []),
    "DQN-v0/LunarLander-v3": (200, 150_000, []),
    "PPO-v0/LunarLander-v3": (200, 400_000, []),
    "TD3-v0/LunarLanderContinuous-v3": (200, 200_000, []),
    "SAC-v0/LunarLanderContinuous-v3": (200, 200_000, []),
    "TD3-v0/HalfCheetah-v5": (6_000, 300_000, []),
    "SAC-v0/HalfCheetah-v5": (6_000, 300_000, []),
    # Without packaged settings: what somebody's own environment gets.
    "PPO-v0/InvertedPendulum-v5": (950, 100_000, []),
    "SAC-v0/InvertedPendulum-v5": (950, 10_000, []),
    "TD3-v0/InvertedPendulum-v5": (950, 10_000, []),
    "PPO-v0/Reacher-v5": (-6, 200_000, []),
    "SAC-v0/Reacher-v5": (-6, 12_000, []),
    "PPO-v0/MountainCarContinuous-v0": (90, 100_000, []),
    "SAC-v0/MountainCarContinuous-v0": (90, 15_000, []),
    "PPO-v0/Hopper-v5": (1_500, 300_000, []),
    "DQN-v0/FrozenLake-v1": (0.7, 50_000, []),
    "PPO-v0/FrozenLake-v1": (0.7, 100_000, []),
    "DQN-v0/Taxi-v4": (7, 100_000, []),
    "PPO-v0/Taxi-v4": (7, 300_000, []),
}
EVALUATIONS = 25
JUDGED_SEEDS = "1001-1020"
"""Packaged settings are tuned on seeds 1 to 10 only."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seeds", type=seeds_of, default=seeds_of(JUDGED_SEEDS))
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--out", type=Path, default=Path("learning_results"))
    parser.add_argument("--limit", type=float, default=None, help="seconds a run may take")
    parser.add_argument("--table", type=Path, nargs="+", help="only show these results")
    parser.add_argument("--words", nargs=argparse.REMAINDER, default=[], help="more parameters")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.table:
        found = [result for path in options.table for result in read(path)]
    else:
        # The long ones first, so that the last minutes are not spent on one core.
        tasks = sorted(options.only, key=lambda task: -TASKS[task][1])
        pairs = [(task, seed) for task in tasks for seed in options.seeds]
        with ThreadPoolExecutor(options.jobs) as pool:
            found = list(pool.map(lambda pair: run_once(*pair, options), pairs))
    (options.out / "results.json").write_text(json.dumps(found, indent=1))
    print(table(found), end="")
    draw(found, options.out / "curves.png")


def seeds_of(text: str) -> list[int]:
    """``1001-1020`` or ``1,2,5``."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if last else [int(n) for n in text.split(",")]


def read(path: Path) -> list[dict[str, Any]]:
    """The results in a file of ours (JSON) or of the peers (one JSON a line)."""
    text = path.read_text()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)  # type: ignore[no-any-return]


def run_once(task: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """The result of an earlier call, or of a run made now."""
    folder = options.out / f"{task.replace('/', '_')}_{seed}"
    _, steps, words = TASKS[task]
    limit = ["--wall_time", str(options.limit)] if options.limit else []
    return kept(folder, lambda: judged(task, seed, steps, folder, [*words, *limit, *options.words]))


def kept(folder: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What stands beside ``folder``, else what ``make`` gives, which then stands there."""
    path = folder.with_name(f"{folder.name}.json")
    if path.exists():
        return json.loads(path.read_text())[0]  # type: ignore[no-any-return]
    result = make()
    if result["code"] == 0:
        path.write_text(json.dumps([result]))
    return result


def judged(
    task: str,
    seed: int,
    steps: int,
    folder: Path,
    words: Sequence[str] = (),
    evaluations: int = EVALUATIONS,
) -> dict[str, Any]:
    """One run of ``agent/environment``: its evaluations, and its last and its best policy's mean return
    in 100 episodes."""
    agent, env = task.split("/")
    exarl = [sys.executable, "-m", "exarl"]
    command = [
        *(*exarl, "train", "--agent", agent, "--env", env, "--seed", str(seed)),
        *("--total_steps", str(steps), "--eval_interval", str(steps // evaluations)),
        *("--run_dir", str(folder), *words),
    ]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "NPROC": "1"}

    def said(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, capture_output=True, text=True, env=quiet, check=False)

    trained = said(command)
    result: dict[str, Any] = {"task": task, "seed": seed, "code": trained.returncode}
    if trained.returncode:
        print(f"{task} seed {seed}: exit code {trained.returncode}\n{trained.stderr[-500:]}")
        return result
    with (folder / "evaluations.csv").open() as file:
        rows = list(csv.DictReader(file))
    result["curve"] = [[int(r["timesteps_total"]), float(r["reward_mean"])] for r in rows]
    summary = json.loads((folder / "summary.json").read_text())
    result |= {"seconds": summary["wall_s"], "steps_per_s": summary["steps_per_s"]}
    for which, flags in (("last", ()), ("best", ("--best",))):
        played = said([*exarl, "evaluate", str(folder), *flags, "--episodes", "100"])
        mean = re.search(r"^reward (\S+) \+-", played.stdout, re.MULTILINE)
        result[which] = float(mean[1]) if mean else None
    return result


def steps_to(result: dict[str, Any], threshold: float) -> float:
    """Steps at the first evaluation that reached ``threshold``; infinity if none did."""
    reached = [steps for steps, reward in result.get("curve", []) if reward >= threshold]
    return reached[0] if reached else np.inf


def table(found: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| agent / environment | threshold | last policy, IQM [95%] | lowest | at the threshold |"
        " best policy, IQM [95%] | steps to it, median [95%] | steps/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (task, by), runs in grouped(found).items():
        last = [r["last"] for r in runs if r.get("last") is not None]
        if not last:
            continue
        threshold = TASKS[task][0]
        reached = [steps_to(r, threshold) for r in runs]
        best = [r["best"] for r in runs if r.get("best") is not None]
        ours = [r["last"] for r in grouped(found).get((task, ""), []) if r.get("last") is not None]
        beside = ""
        if by and ours:
            beside = "; P(ours ends better) {:.2f} [{:.2f}, {:.2f}]".format(
                *improvement(ours, last)
            )
        speed = np.median([r["steps_per_s"] for r in runs if "steps_per_s" in r])
        lines.append(
            f"| {task}{f', {by}' if by else ''} | {threshold:g} | {shown(last)}{beside}"
            f" | {min(last):.1f} | {sum(r >= threshold for r in last)} of {len(runs)}"
            f" | {shown(best) if best else ''} | {shown_steps(reached)} | {speed:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def grouped(found: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The runs by task and by peer, "" being us."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for task in TASKS:
        for result in found:
            if result["task"] == task:
                groups.setdefault((task, result.get("by", "")), []).append(result)
    return groups


def shown(rewards: Sequence[float]) -> str:
    low, high = interval(rewards)
    return f"{interquartile_mean(rewards):.1f} [{low:.1f}, {high:.1f}]"


def shown_steps(reached: Sequence[float]) -> str:
    """Their median with its interval; a run that never got there counts as more than all others."""

    def told(steps: float) -> str:
        return f"{steps:,.0f}" if np.isfinite(steps) else "more"

    def median(values: np.ndarray) -> np.ndarray:
        return np.sort(values, axis=-1)[..., values.shape[-1] // 2]

    finite = np.where(np.isfinite(reached), reached, 1e18)
    low, high = (np.inf if end >= 1e17 else end for end in interval(list(finite), median))
    middle = float(median(np.array(reached)))
    return f"{told(middle)} [{told(low)}, {told(high)}]"


def draw(found: Sequence[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = {task: runs for (task, by), runs in grouped(found).items() if not by}
    columns = 4
    height = -(-len(results) // columns)
    figure, axes = plt.subplots(
        height, columns, figsize=(4 * columns, 3 * height), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(results) :]:
        axis.axis("off")
    for axis, (task, runs) in zip(axes.flat, results.items(), strict=False):
        for one in runs:
            if one.get("curve"):
                axis.plot(*np.transpose(one["curve"]), lw=1)
        axis.axhline(TASKS[task][0], color="0.6", ls="--", lw=0.8)
        axis.set_title(task, fontsize=9)
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    main()
