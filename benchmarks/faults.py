"""A run in environments that raise, segfault, hang and return NaN, against the same run without.

    python benchmarks/faults.py [--steps 200000] [--actors 4] [--envs_per_actor 4] [--p 0.001]

ExaFaulty-v0 in processes of their own, DQN, workflow async. Checked: the run finishes; what it
counted, by environment and kind, is what the environments wrote into their folders; no NaN is in the
replay memory and no transition is there twice. Throughput is compared after taking out the actors'
time for restarts and for waiting until a hanging step is given up; less than 80% of the clean
run's is a failure.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from exarl.comm.codec import BlockCodec
from exarl.envs import make_env
from exarl.envs.spaces import adapt
from exarl.records.checkpoint import load_newest
from exarl.types import FAILURES

KIND_OF = {"raise": "raise", "crash": "crash", "hang": "timeout", "nan": "nan"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--actors", type=int, default=4)
    parser.add_argument("--envs_per_actor", type=int, default=4)
    parser.add_argument("--p", type=float, default=1e-3, help="of each kind, a step")
    parser.add_argument("--step_seconds", type=float, default=1e-3)
    parser.add_argument("--step_timeout", type=float, default=2.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clean = train(Path(folder) / "clean", options, 0.0)
        show("clean", clean)
        faulty = train(Path(folder) / "faulty", options, options.p)
        show("faulty", faulty)
        balanced = check(Path(folder) / "faulty", faulty)
    kept = useful_rate(faulty, options) / useful_rate(clean, options)
    lost = faulty["env_failures"]["timeout"] * options.step_timeout / options.actors
    share = faulty["time_split"]["actors"]["restart"]
    print(
        f"each actor spent {share * faulty['wall_s']:.0f} s restarting, {lost:.0f} s in hung steps"
    )
    print(f"throughput besides: {kept:.1%} of the clean run's")
    if not balanced or kept < 0.8:
        sys.exit(1)


def train(run: Path, options: argparse.Namespace, p: float) -> dict[str, Any]:
    """The summary of a run in which each kind of failure has probability ``p``."""
    words = {
        "procs": options.actors + 1,
        "env": "ExaFaulty-v0",
        "workflow": "async",
        "envs_per_actor": options.envs_per_actor,
        "total_steps": options.steps,
        "run_dir": run,
        "env_failure": "restart",
        "env_isolation": "process",
        "step_timeout": options.step_timeout,
        "step_seconds": options.step_seconds,
        "checkpoint_interval": 3600,
        "updates_per_step": 0.02,
        "replay_capacity": 2 * options.steps,
        "hidden": "[16]",
        **{f"{way}_p": p for way in KIND_OF},
    }
    flags = [part for name, value in words.items() for part in (f"--{name}", str(value))]
    subprocess.run(
        [sys.executable, "-m", "exarl", "train", *flags],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return dict(json.loads((run / "summary.json").read_text()))


def show(name: str, summary: dict[str, Any]) -> None:
    failures = {kind: summary["env_failures"][kind] for kind in FAILURES}
    print(
        f"{name}: {summary['reason']}, {summary['timesteps_total']:,} steps in"
        f" {summary['wall_s']:.1f} s ({summary['steps_per_s']:,.0f} steps/s),"
        f" {summary['env_restarts']} restarts {failures}",
        flush=True,
    )


def useful_rate(summary: dict[str, Any], options: argparse.Namespace) -> float:
    """Steps per second of the actors' time, without restarts and hung steps."""
    hung = summary["env_failures"]["timeout"] * options.step_timeout / options.actors
    restarting = summary["time_split"]["actors"]["restart"] * summary["wall_s"]
    return float(summary["timesteps_total"] / (summary["wall_s"] - restarting - hung))


def check(run: Path, summary: dict[str, Any]) -> bool:
    """Whether the counts of run and environments agree, and the replay is clean."""
    books = {
        str(int(book.parent.name)): Counter(KIND_OF[way] for way in book.read_text().split())
        for book in (run / "envs").glob("*/failures.txt")
    }
    counted = {e: Counter(k) for e, k in summary["env_failures"]["environments"].items()}
    trained = sum(kinds.total() for kinds in counted.values())
    found = load_newest(run / "checkpoints")
    assert found is not None
    for number, *counts in left_over(found.arrays):
        kinds = counted.setdefault(str(number), Counter())
        kinds.update({k: n for k, n in zip(FAILURES, counts, strict=True) if n})
    total = sum(kinds.total() for kinds in books.values())
    same = counted == books
    print(
        f"{len(books)} environments wrote down {total} failures; the run counted {trained}, and"
        f" {sum(k.total() for k in counted.values()) - trained} more in steps it did not train;"
        f" by environment and kind {'the same' if same else 'NOT the same'}"
    )
    prefix = "replay/rows/"
    stored = found.arrays["agent"].items()
    replay = {n.removeprefix(prefix): a for n, a in stored if n.startswith(prefix)}
    rows = np.concatenate([replay["observation"], replay["next_observation"]], 1)
    unique = len(np.unique(rows, axis=0))
    finite = all(np.isfinite(a).all() for a in replay.values() if a.dtype.kind == "f")
    print(f"replay: {len(rows):,} transitions, {unique:,} different, finite: {finite}")
    return same and finite and unique == len(rows) == summary["timesteps_total"]


def left_over(arrays: dict[str, Any]) -> list[list[int]]:
    """Failures in blocks that were not trained when the run ended, or were given up."""
    env, _ = make_env("ExaFaulty-v0", {})
    spaces = env.observation_space, env.action_space
    spec = adapt("", *spaces, action_kind="discrete", nactions=0, max_episode_steps=None).spec
    rows = [r for b in BlockCodec(spec, {}).unpack(arrays["pending"]) for r in b.failures.tolist()]
    for name, array in arrays["envs"].items():
        if name.endswith("/failures"):
            rows.append([int(name.split("/")[0]), *array.tolist()])
    return rows


if __name__ == "__main__":
    main()
