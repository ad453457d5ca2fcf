"""C7, C8, C9: one-sided against two-sided with one learner, and several learners against one.

    python benchmarks/claims/learners.py [--learners 1 2 4 8] [--actors 8] [--steps 4000]

The load is learner-bound: a large network and batch, cheap environments, the same global batch for
every number of learners. Printed: time of the same work, and the ratio to one learner.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HEAVY = ("--hidden", "[512,512]", "--batch_size", "4096", "--updates_per_step", "0.05")
LIGHT = ("--hidden", "[64,128]", "--batch_size", "64", "--updates_per_step", "0.25")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--learners", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--actors", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("C7: one learner, light load, time for the same work (median of rounds)")
    for workflow in ("async", "rma"):
        seconds = [
            train(workflow, 1, options.actors, 5 * options.steps, LIGHT)
            for _ in range(options.rounds)
        ]
        print(f"  {workflow:6s} {sorted(seconds)[len(seconds) // 2]:7.2f} s", flush=True)
    for workflow in ("async", "rma"):
        print(f"C8/C9: {workflow}, learner-bound, {options.actors} actors")
        alone = None
        for learners in options.learners:
            seconds = train(workflow, learners, options.actors, options.steps, HEAVY)
            alone = alone or seconds
            print(
                f"  {learners:2d} learners {seconds:7.2f} s  x{alone / seconds:.2f}"
                f"  ({1 - seconds / alone:+.0%} time saved)",
                flush=True,
            )


def train(workflow: str, learners: int, actors: int, steps: int, load: tuple[str, ...]) -> float:
    """Seconds of training, from the first block to the last."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        subprocess.run(
            [
                *(sys.executable, "-m", "exarl", "train", "--procs", str(learners + actors)),
                *("--learner_procs", str(learners), "--workflow", workflow, "--run_dir", str(run)),
                *("--total_steps", str(steps), "--learning_starts", "320", *load),
            ],
            check=True,
            capture_output=True,
        )
        rows = [json.loads(line) for line in (run / "result.jsonl").read_text().splitlines()]
    learning = [row for row in rows if row["updates_total"] > 0]
    # The first update compiles.
    return float(learning[-1]["time_total_s"] - learning[1]["time_total_s"])


if __name__ == "__main__":
    main()
