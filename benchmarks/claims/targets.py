"""C10: who computes DQN's targets, and what part of a block's time that takes.

    python benchmarks/claims/targets.py [--blocks 12] [--group 4] [--rounds 3]

One learner and one CartPole whose group of ranks steps it together, each its own copy (so that ranks
without a core of their own do not spin in a collective); blocks of 512 steps, network [512, 512].
``learner``, ``actor`` and ``group`` are EXARL's; ``naive`` computes the targets of one
sample after another as the original EXARL did, alone or shared among the group. Printed are medians
over the blocks of all rounds: an actor's time for a block without its targets, for the targets, their
share, and the learner's time for an update (which contains the targets if ``learner`` makes them).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from exarl import agents
from exarl.agents.base import Spread
from exarl.agents.dqn import DQN
from exarl.types import Arrays, Block, Metrics

BOOK = "EXARL_TARGETS_BOOK"
SHAPE = ("--block_steps", "512", "--hidden", "[512,512]", "--updates_per_step", "0.02")
KINDS = {
    "learner": ("Timed-v0", "learner"),
    "actor": ("Timed-v0", "actor"),
    "group": ("Timed-v0", "group"),
    "naive, actor": ("Naive-v0", "actor"),
    "naive, group": ("Naive-v0", "group"),
}


class Copied(CartPoleEnv):
    """CartPole for a group of ranks that need not talk to each other."""

    def __init__(self, comm: Any = None, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)


class Timed(DQN):
    """DQN that writes down what targets and updates cost."""

    def prepare(self, block: Block, spread: Spread | None = None) -> Block:
        started = time.perf_counter()
        prepared = super().prepare(block, spread)
        acting = float(block.seconds[:2].sum())
        _note({"acting": acting, "targets": time.perf_counter() - started})
        return prepared

    def train_in_team(self, block: Block | None, steps: int) -> Metrics:
        started = time.perf_counter()
        metrics = super().train_in_team(block, steps)
        if metrics["updates"]:
            _note({"update": (time.perf_counter() - started) / metrics["updates"]})
        return metrics


class Naive(Timed):
    """The same with a loop over single samples."""

    def generate(self, rows: Arrays) -> Arrays:
        made = [
            super(Naive, self).generate({n: a[i : i + 1] for n, a in rows.items()})["target"]
            for i in range(len(rows["reward"]))
        ]
        return {"target": np.concatenate(made)}


def _note(entry: dict[str, float]) -> None:
    with open(os.environ[BOOK], "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def measure(kind: str, blocks: int, group: int) -> dict[str, list[float]]:
    """The seconds that were written down, without the first of each, which warm up and compile."""
    agent, where = KINDS[kind]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        book = Path(folder) / "book"
        subprocess.run(
            [
                *(sys.executable, "-m", "exarl", "train", "--procs", str(1 + group)),
                *("--process_per_env", str(group), "--env", "targets:Copied-v0", *SHAPE),
                *("--agent", f"targets:{agent}", "--data_generation", where),
                *("--workflow", "async", "--run_dir", str(Path(folder) / "run")),
                *("--total_steps", str(512 * blocks), "--learning_starts", "512"),
            ],
            env={**os.environ, "PYTHONPATH": path, BOOK: str(book)},
            check=True,
            capture_output=True,
        )
        entries = [json.loads(line) for line in book.read_text(encoding="utf-8").splitlines()]
    names = ("acting", "targets", "update")
    return {name: [entry[name] for entry in entries if name in entry][2:] for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--group", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in KINDS}
    for _ in range(options.rounds):
        for kind in KINDS:  # interleaved, so that a busy machine is busy for all
            for name, values in measure(kind, options.blocks, options.group).items():
                found[kind].setdefault(name, []).extend(values)
    print("targets by      acting    targets     share of the block   an update")
    for kind, named in found.items():
        acting, targets, update = (statistics.median(named[n]) for n in named)
        print(
            f"{kind:14s}  {acting * 1e3:6.0f} ms  {targets * 1e3:7.2f} ms"
            f"  {targets / (acting + targets):18.1%}   {update * 1e3:6.2f} ms"
        )


if __name__ == "__main__":
    main()
else:  # loaded by a run: ``--agent targets:Timed-v0``
    gymnasium.register("Copied-v0", Copied, max_episode_steps=500)
    agents.register("Timed-v0", Timed)
    agents.register("Naive-v0", Naive)
