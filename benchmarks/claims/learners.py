"""C7, C8, C9: one-sided against two-sided with one learner, and several learners against one.

    python benchmarks/claims/learners.py [--learners 1 2 4 8] [--actors 8] [--steps 4000] [--threads 1]

The load is learner-bound: a large network and batch, cheap environments, the same global batch for
every number of learners. Printed: milliseconds per update, and the ratio of the ideal to it. The ideal
is the time of the first number of learners, divided among as many more learners; with ``--threads 1``
that is one learner's time on one core. Rounds are interleaved, so that other load is the same for all,
and medians are taken. Learners and actors should have a core each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HEAVY = ("--hidden", "[512,512]", "--batch_size", "4096", "--updates_per_step", "0.05")
LIGHT = ("--hidden", "[64,128]", "--batch_size", "64", "--updates_per_step", "0.25")
WORKFLOWS = ("async", "rma")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--learners", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--actors", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="of each learner; else its share of the cores")
    parser.add_argument("--light", action="store_true", help="C7: one learner, a small network")
    options = parser.parse_args()
    learners: Sequence[int] = [1] if options.light else options.learners
    load, steps = (LIGHT, 5 * options.steps) if options.light else (HEAVY, options.steps)
    cases = [(workflow, count) for workflow in WORKFLOWS for count in learners]
    found: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    for _ in range(options.rounds):
        for workflow, count in cases:
            words = (*load, "--total_steps", str(steps), "--workflow", workflow)
            found[workflow, count].append(train(words, count, options.actors, options.threads))
    print("workflow  learners  ms per update (least to most)  ideal / measured")
    for (workflow, count), times in found.items():
        middle = statistics.median(times)
        ideal = statistics.median(found[workflow, learners[0]]) * learners[0] / count
        spread = f"({min(times):.1f} to {max(times):.1f})"
        print(f"{workflow:8s}  {count:8d}  {middle:8.1f}  {spread:19s}  {ideal / middle:16.2f}")


def train(words: Sequence[str], learners: int, actors: int, threads: int | None) -> float:
    """Milliseconds per update, from the first row with updates, which compile, to the last."""
    environ = {**os.environ, "NPROC": str(threads)} if threads else None
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        subprocess.run(
            [
                *(sys.executable, "-m", "exarl", "train", "--procs", str(learners + actors)),
                *("--learner_procs", str(learners), "--run_dir", str(run)),
                *("--learning_starts", "320", *words),
            ],
            check=True,
            capture_output=True,
            env=environ,
        )
        rows = [json.loads(line) for line in (run / "result.jsonl").read_text().splitlines()]
    learning = [row for row in rows if row["updates_total"] > 0]
    first, last = learning[1], learning[-1]
    updates = last["updates_total"] - first["updates_total"]
    return 1e3 * float(last["time_total_s"] - first["time_total_s"]) / updates


if __name__ == "__main__":
    main()
