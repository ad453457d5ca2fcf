"""C7, C8, C9: one-sided against two-sided with one learner, and several learners against one.

    python benchmarks/claims/learners.py [--learners 1 2 4 8] [--actors 8] [--steps 1600] [--threads 1]
                                         [--rounds 3] [--limit 180]

The load is learner-bound: a large network and batch, cheap environments, the same global batch for
every number of learners. Printed: milliseconds per update, and the ratio of the ideal to it. The ideal
is the time of the first number of learners, divided among as many more learners; with ``--threads 1``
that is one learner's time on one core. Rounds are interleaved, so that other load is the same for all,
and medians are taken. Learners and actors should have a core each. No run is begun that would probably
end after ``--limit`` seconds, and the one under way then is ended and left out; on 16 cores two
rounds of ``--threads 1`` take about three minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HEAVY = ("--hidden", "[512,512]", "--batch_size", "4096", "--updates_per_step", "0.05")
LIGHT = ("--hidden", "[64,128]", "--batch_size", "64", "--updates_per_step", "0.25")
WORKFLOWS = ("async", "rma")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--learners", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--actors", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="of each learner; else its share of the cores")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds for everything")
    parser.add_argument("--light", action="store_true", help="C7: one learner, a small network")
    options = parser.parse_args()
    learners: Sequence[int] = [1] if options.light else options.learners
    load, steps = (LIGHT, 25 * options.steps // 2) if options.light else (HEAVY, options.steps)
    cases = [(workflow, count) for workflow in WORKFLOWS for count in learners]
    found: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    took: dict[tuple[str, int], float] = {}
    end = time.monotonic() + options.limit
    for case in cases * options.rounds:
        workflow, count = case
        begun = time.monotonic()
        if begun + took.get(case, 0) > end:
            break
        words = (*load, "--total_steps", str(steps), "--workflow", workflow)
        with contextlib.suppress(subprocess.TimeoutExpired):
            left = end - begun if math.isfinite(end) else None
            ms = train(words, count, options.actors, options.threads, left)
            found[case].append(ms)
            took[case] = time.monotonic() - begun
            sys.stderr.write(f"{workflow} {count}: {ms:.1f} ms per update, {took[case]:.0f} s\n")
    print("workflow  learners  ms per update (least to most)  ideal / measured")
    for (workflow, count), times in found.items():
        if not times or not found[workflow, learners[0]]:
            print(f"{workflow:8s}  {count:8d}  not measured within the limit")
            continue
        middle = statistics.median(times)
        ideal = statistics.median(found[workflow, learners[0]]) * learners[0] / count
        spread = f"({min(times):.1f} to {max(times):.1f})"
        print(f"{workflow:8s}  {count:8d}  {middle:8.1f}  {spread:19s}  {ideal / middle:16.2f}")


def train(
    words: Sequence[str], learners: int, actors: int, threads: int | None, limit: float | None
) -> float:
    """Milliseconds per update, from the first row with updates, which compile, to the last;
    TimeoutExpired after ``limit`` seconds."""
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environ = {**os.environ, **as_root, **({"NPROC": str(threads)} if threads else {})}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "exarl", "train", "--procs", str(learners + actors)),
                *("--learner_procs", str(learners), "--run_dir", str(run)),
                *("--learning_starts", "320", *words),
            ],
            check=False,
            capture_output=True,
            text=True,
            env=environ,
            timeout=limit,
        )
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
        rows = [json.loads(line) for line in (run / "result.jsonl").read_text().splitlines()]
    learning = [row for row in rows if row["updates_total"] > 0]
    first, last = learning[1], learning[-1]
    updates = last["updates_total"] - first["updates_total"]
    return 1e3 * float(last["time_total_s"] - first["time_total_s"]) / updates


if __name__ == "__main__":
    main()
