"""C14: inference on the learner (seed) against inference on the actors (async), by network size.

    python benchmarks/claims/seed.py [--widths 64 256 1024 2048] [--actors 14] [--envs 8]
        [--step_ms 0 1] [--generation learner actor] [--seconds 20] [--extra WORDS ...]

DQN in ExaLatency-v0, the same environments, steps and updates for both: two hidden layers of each
width, and steps of the environment that take no time or ``step_ms``. ``--generation actor`` computes
the targets where a block is made: on the actors in async, on the learner in seed. Printed:
environment steps/s, training included, over the part of the run after the first updates.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

WORKFLOWS = ("async", "seed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 256, 1024, 2048])
    parser.add_argument("--actors", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--envs", type=int, default=8, help="environments an actor")
    parser.add_argument("--step_ms", type=float, nargs="+", default=[0.0])
    parser.add_argument("--generation", nargs="+", default=["learner"])
    parser.add_argument("--seconds", type=float, default=20.0, help="of training in each run")
    parser.add_argument("--rounds", type=int, default=1, help="the median of so many runs counts")
    parser.add_argument("--extra", nargs=argparse.REMAINDER, default=[], help="more parameters")
    options = parser.parse_args()
    print(f"learner on {device()}; {options.actors} actors of {options.envs} environments")
    print("targets  step ms  width   async/s    seed/s  seed/async")
    for generation in options.generation:
        for step_ms in options.step_ms:
            for width in options.widths:
                words = [
                    *("--hidden", f"[{width},{width}]", "--env.mean_seconds", str(step_ms / 1000)),
                    *("--data_generation", generation, *options.extra),
                ]
                rates = [
                    sorted(measure(name, words, options) for _ in range(options.rounds))
                    for name in WORKFLOWS
                ]
                own, learners = (found[len(found) // 2] for found in rates)
                print(
                    f"{generation:7s}  {step_ms:7g}  {width:5d}  {own:8,.0f}  {learners:8,.0f}"
                    f"  {learners / own:10.2f}",
                    flush=True,
                )


def device() -> str:
    """What JAX computes on in a process that learns."""
    code = "import jax; d = jax.devices()[0]; print(d.platform, d.device_kind)"
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def measure(workflow: str, words: list[str], options: argparse.Namespace) -> float:
    """Environment steps a second, from a quarter of the run's training on."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        job = subprocess.run(
            [
                *(sys.executable, "-m", "exarl", "train", "--procs", str(options.actors + 1)),
                *("--workflow", workflow, "--env", "ExaLatency-v0", "--run_dir", str(run)),
                *("--env.observation_size", "64", "--envs_per_actor", str(options.envs)),
                *("--agent", "DQN-v0", "--batch_size", "256", "--updates_per_step", "0.002"),
                *("--learning_starts", "1000", "--checkpoint_interval", "3600"),
                *("--wall_time", str(options.seconds), *words),
            ],
            check=False,
            capture_output=True,
            text=True,
        )
        if job.returncode:
            raise SystemExit(job.stderr)
        rows = [json.loads(line) for line in (run / "result.jsonl").read_text().splitlines()]
    learned = [row for row in rows if row["updates_total"] > 0]
    first, last = learned[len(learned) // 4], learned[-1]
    span = last["time_total_s"] - first["time_total_s"]
    return float((last["timesteps_total"] - first["timesteps_total"]) / span)


if __name__ == "__main__":
    main()
