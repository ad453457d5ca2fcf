"""What each agent learns with the packaged settings: return, and steps to a threshold.

    python benchmarks/learning/run.py [--only PPO-v0/CartPole-v1 ...] [--seeds 5] [--jobs 2] [--out DIR]
    python benchmarks/learning/run.py --table results.json ... [--out DIR]

Every run is ``exarl train`` with evaluations of the greedy policy beside it. The table gives, over the
seeds, the interquartile mean of the best policy's return in 100 episodes of other seeds, its range, and
the median of the steps at which an evaluation first reached the threshold. ``DIR/curves.png`` shows the
evaluations; ``DIR/results.json`` holds everything. Called again after a stop it goes on: runs whose
result stands in DIR are not made again. ``--table`` puts the results of several calls into one table.
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

TASKS: dict[str, tuple[float, int, list[str]]] = {
    # agent/environment: threshold, steps, other words
    "DQN-v0/CartPole-v1": (475, 60_000, []),
    "A2C-v0/CartPole-v1": (475, 200_000, []),
    "A3C-v0/CartPole-v1": (475, 200_000, ["--workflow", "async", "--procs", "3"]),
    "PPO-v0/CartPole-v1": (475, 100_000, []),
    "DDPG-v0/Pendulum-v1": (-200, 12_000, []),
    "TD3-v0/Pendulum-v1": (-200, 12_000, []),
    "SAC-v0/Pendulum-v1": (-200, 12_000, []),
    "PPO-v0/Pendulum-v1": (-200, 200_000, []),
    "DQN-v0/Acrobot-v1": (-100, 100_000, []),
    "PPO-v0/Acrobot-v1": (-100, 300_000, []),
    "DQN-v0/LunarLander-v3": (200, 150_000, []),
    "PPO-v0/LunarLander-v3": (200, 400_000, []),
    "TD3-v0/LunarLanderContinuous-v3": (200, 200_000, []),
    "SAC-v0/LunarLanderContinuous-v3": (200, 200_000, []),
    "TD3-v0/HalfCheetah-v5": (6_000, 300_000, []),
    "SAC-v0/HalfCheetah-v5": (6_000, 300_000, []),
}
EVALUATIONS = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--out", type=Path, default=Path("learning_results"))
    parser.add_argument("--limit", type=float, default=None, help="seconds a run may take")
    parser.add_argument("--table", type=Path, nargs="+", help="only show these results")
    parser.add_argument("--words", nargs=argparse.REMAINDER, default=[], help="more parameters")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.table:
        found = [r for path in options.table for r in json.loads(path.read_text())]
    else:
        # The long ones first, so that the last minutes are not spent on one core.
        tasks = sorted(options.only, key=lambda task: -TASKS[task][1])
        pairs = [(task, seed) for task in tasks for seed in range(1, options.seeds + 1)]
        with ThreadPoolExecutor(options.jobs) as pool:
            found = list(pool.map(lambda pair: run_once(*pair, options), pairs))
    (options.out / "results.json").write_text(json.dumps(found, indent=1))
    by_task = {task: [r for r in found if r["task"] == task] for task in TASKS}
    results = {task: runs for task, runs in by_task.items() if runs}
    print(table(results), end="")
    draw(results, options.out / "curves.png")


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
    """One run of ``agent/environment``: its greedy returns, and its best policy's mean of 100."""
    agent, env = task.split("/")
    exarl = [sys.executable, "-m", "exarl"]
    command = [
        *(*exarl, "train", "--agent", agent, "--env", env, "--seed", str(seed)),
        *("--total_steps", str(steps), "--eval_interval", str(steps // evaluations)),
        *("--run_dir", str(folder), *words),
    ]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    trained = subprocess.run(command, capture_output=True, text=True, env=quiet, check=False)
    result: dict[str, Any] = {"task": task, "seed": seed, "code": trained.returncode}
    if trained.returncode:
        print(f"{task} seed {seed}: exit code {trained.returncode}\n{trained.stderr[-500:]}")
        return result
    with (folder / "evaluations.csv").open() as file:
        rows = list(csv.DictReader(file))
    result["curve"] = [[int(r["timesteps_total"]), float(r["reward_mean"])] for r in rows]
    summary = json.loads((folder / "summary.json").read_text())
    result |= {"seconds": summary["wall_s"], "steps_per_s": summary["steps_per_s"]}
    played = subprocess.run(
        [*exarl, "evaluate", str(folder), "--best", "--episodes", "100"],
        capture_output=True,
        text=True,
        env=quiet,
        check=False,
    )
    mean = re.search(r"^reward (\S+) \+-", played.stdout, re.MULTILINE)
    result["reward"] = float(mean[1]) if mean else None
    return result


def steps_to(result: dict[str, Any], threshold: float) -> float:
    """Steps at the first evaluation that reached ``threshold``; infinity if none did."""
    reached = [steps for steps, reward in result.get("curve", []) if reward >= threshold]
    return reached[0] if reached else np.inf


def interquartile_mean(values: list[float]) -> float:
    ordered = np.sort(values)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    lines = [
        "| agent / environment | threshold | reward, IQM [range] | reached | steps to it, median |"
        " steps/s |",
        "|---|---|---|---|---|---|",
    ]
    for task, runs in results.items():
        rewards = [r["reward"] for r in runs if r.get("reward") is not None]
        if not rewards:
            continue
        threshold = TASKS[task][0]
        median = float(np.median([steps_to(r, threshold) for r in runs]))
        shown = f"{median:,.0f}" if np.isfinite(median) else "not within the budget"
        speed = np.median([r["steps_per_s"] for r in runs if "steps_per_s" in r])
        lines.append(
            f"| {task} | {threshold:g} | {interquartile_mean(rewards):.1f}"
            f" [{min(rewards):.1f}, {max(rewards):.1f}]"
            f" | {sum(r >= threshold for r in rewards)} of {len(runs)} | {shown} | {speed:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def draw(results: dict[str, list[dict[str, Any]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

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
