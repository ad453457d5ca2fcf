"""C6: how often several learners read the same block, with random and with assigned windows.

    python benchmarks/claims/windows.py [--actors 16] [--learners 1 2 4 8]

Structure ``buffer`` (the newest block, read without removing it), as in the original EXARL. The same
by simulation: L learners each pick one of A actors at random per round.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--actors", type=int, default=16)
    parser.add_argument("--learners", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--steps", type=int, default=4000)
    options = parser.parse_args()
    print("learners/actors  random  assigned  simulated (random)")
    for learners in options.learners:
        found = [
            redundant(learners, options.actors, options.steps, s) for s in ("random", "assigned")
        ]
        print(
            f"{learners:8d}/{options.actors:<6d}  {found[0]:6.1%}  {found[1]:8.1%}"
            f"  {simulated(learners, options.actors):9.1%}",
            flush=True,
        )


def redundant(learners: int, actors: int, steps: int, selection: str) -> float:
    """The part of the trained blocks that somebody had read before."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        subprocess.run(
            [
                *(sys.executable, "-m", "exarl", "train", "--procs", str(learners + actors)),
                *("--learner_procs", str(learners), "--workflow", "rma", "--run_dir", str(run)),
                *("--structure", "buffer", "--window_selection", selection),
                *("--env", "ExaLatency-v0", "--env.mean_seconds", "0.002", "--block_steps", "8"),
                *("--total_steps", str(steps), "--updates_per_step", "0.125"),
                *("--learning_starts", "64", "--hidden", "[16]"),
            ],
            check=True,
            capture_output=True,
        )
        blocks = json.loads((run / "summary.json").read_text())["blocks"]
    return float(blocks["redundant"] / max(blocks["trained"], 1))


def simulated(learners: int, actors: int, rounds: int = 20_000) -> float:
    """Picks of an actor that another learner picked in the same round."""
    rng = random.Random(0)
    again = 0
    for _ in range(rounds):
        picks = [rng.randrange(actors) for _ in range(learners)]
        again += learners - len(set(picks))
    return again / (rounds * learners)


if __name__ == "__main__":
    main()
