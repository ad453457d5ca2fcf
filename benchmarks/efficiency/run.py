"""What agents learn from 100,000 steps of Gymnasium's MuJoCo tasks, relative to SAC after 1,000,000.

    python benchmarks/efficiency/run.py [--agents SAC REDQ ...] [--only Hopper-v5 ...] [--jobs 2]
        [--seeds 1001-1005] [--steps 100000] [--limit SECONDS] [--out DIR] [--words --key value ...]

Every run is ``exarl train``; its last policy then plays 100 episodes of other seeds. The table gives
the mean over the seeds for each task and, over the tasks, the mean of what that is relative to SAC's
published return, with the 95% bootstrap interval over the seeds. ``DIR/results.json`` holds
everything. Called again after a stop it goes on: runs whose result stands in DIR are not made again.
With a GPU, several jobs share it; ``--words --replay_device device`` keeps the replay there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "learning"))
from run import interval, judged, kept, seeds_of

SAC_AT_1M: dict[str, float] = {
    # Mean of 10 seeds at step 999,960 of the v4 tasks, computed from results/baseline/sac.csv of
    # https://github.com/DAVIAN-Robotics/SimbaV2 (commit 86899c2). SAC at 99,996 steps is 0.27 of it.
    "HalfCheetah-v5": 11_320.9,
    "Hopper-v5": 2_787.1,
    "Walker2d-v5": 4_536.5,
    "Ant-v5": 5_733.8,
    "Humanoid-v5": 4_825.5,
}
DELAYED = ("--updates_per_step", "20", "--policy_delay", "20", "--policy_value", "mean")
AGENTS: dict[str, tuple[str, ...]] = {
    # name: agent, its parameters
    "SAC": ("SAC-v0",),
    "TQC": ("TQC-v0", "--critics", "5"),
    "REDQ": ("SAC-v0", "--critics", "10", *DELAYED),
    "DroQ": ("SAC-v0", "--dropout", "0.01", "--layer_norm", "true", *DELAYED),
}
COMMON = ("--learning_starts", "5000", "--block_steps", "16")
EVALUATIONS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--agents", nargs="+", default=list(AGENTS), choices=list(AGENTS))
    parser.add_argument("--only", nargs="+", default=list(SAC_AT_1M), choices=list(SAC_AT_1M))
    parser.add_argument("--seeds", type=seeds_of, default=seeds_of("1001-1005"))
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--limit", type=float, default=None, help="seconds a run may take")
    parser.add_argument("--out", type=Path, default=Path("efficiency_results"))
    parser.add_argument("--words", nargs=argparse.REMAINDER, default=[], help="more parameters")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # jobs share the GPU's memory
    runs = [(n, env, s) for s in options.seeds for n in options.agents for env in options.only]
    with ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(lambda run: run_once(*run, options), runs))
    (options.out / "results.json").write_text(json.dumps(found, indent=1))
    print(table(found), end="")


def run_once(name: str, env: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """The result of an earlier call, or of a run made now."""
    folder = options.out / f"{name}_{env}_{seed}"
    agent, *own = AGENTS[name]
    limit = ["--wall_time", str(options.limit)] if options.limit else []
    words = [*COMMON, *own, *limit, *options.words]

    def make() -> dict[str, Any]:
        task = f"{agent}/{env}"
        return judged(task, seed, options.steps, folder, words, EVALUATIONS)

    return {**kept(folder, make), "name": name, "env": env}


def table(found: Sequence[dict[str, Any]]) -> str:
    envs = [env for env in SAC_AT_1M if any(result["env"] == env for result in found)]
    lines = [
        f"| agent | {' | '.join(envs)} | relative to SAC at 1,000,000 [95%] | minutes a run |",
        "|---|" + "---|" * (len(envs) + 2),
    ]
    for name in AGENTS:
        own = [r for r in found if r["name"] == name and r.get("last") is not None]
        if not own:
            continue
        means = [mean_of(own, env) for env in envs]
        minutes = np.median([r["seconds"] for r in own]) / 60
        shown = " | ".join(f"{mean:,.0f}" for mean in means)
        lines.append(f"| {name} | {shown} | {relative(own, envs)} | {minutes:.0f} |")
    return "\n".join(lines) + "\n"


def mean_of(results: Sequence[dict[str, Any]], env: str) -> float:
    """The mean return of the last policies; NaN without any."""
    last = [result["last"] for result in results if result["env"] == env]
    return float(np.mean(last)) if last else np.nan


def relative(results: Sequence[dict[str, Any]], envs: Sequence[str]) -> str:
    """The mean over the tasks, and its interval over the seeds that have all of them."""
    mean = np.mean([mean_of(results, env) / SAC_AT_1M[env] for env in envs])
    by_seed: dict[int, list[float]] = {}
    for result in results:
        by_seed.setdefault(result["seed"], []).append(result["last"] / SAC_AT_1M[result["env"]])
    whole = [float(np.mean(own)) for own in by_seed.values() if len(own) == len(envs)]
    if len(whole) < 2:
        return f"{mean:.2f}"
    low, high = interval(whole, lambda drawn: drawn.mean(-1))
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    main()
