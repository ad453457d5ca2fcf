"""An asynchronous learner on the GPU against the same learner on the CPU.

    python benchmarks/gpu_learner.py [--actors 14] [--batches 256 1024] [--platforms cpu gpu]

DQN on CartPole and TD3 on Pendulum with two layers of 256 units, one update a step, N actors on the
other cores. The learner has its replay in the host's memory or on its device. Rates are those of the
part of a run after its first updates, so without start and compilation; the ratio is to the CPU with
its replay in memory (one core: EXARL gives XLA one thread there).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENVS = {"DQN-v0": "CartPole-v1", "TD3-v0": "Pendulum-v1"}
SETTLE_S = 0.3
"""Seconds after the first updates that do not count."""

OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
"""So that Open MPI (4 and 5) starts in a container and leaves ranks where the system puts them."""


@dataclass(frozen=True)
class Rates:
    steps_per_s: float
    updates_per_s: float
    first_update_s: float
    bound_by: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--actors", type=int, default=max(1, cores - 2))
    parser.add_argument("--agents", nargs="+", default=list(ENVS), choices=ENVS)
    parser.add_argument("--batches", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--platforms", nargs="+", default=["cpu", "gpu"], choices=("cpu", "gpu"))
    parser.add_argument("--replays", nargs="+", default=["host", "device"])
    parser.add_argument("--seconds", type=float, default=2.5, help="measured of each run")
    parser.add_argument("--timeout", type=float, default=120.0, help="until the first update")
    parser.add_argument("--extra", nargs=argparse.REMAINDER, default=[], help="more parameters")
    options = parser.parse_args()
    print(f"{options.actors} actors, {cores} cores")
    print("agent   batch  learner     steps/s  updates/s  ratio  first update  bound by")
    failures = 0
    for agent in options.agents:
        for batch in options.batches:
            base = None
            for platform, replay in learners(options):
                found = measure(agent, batch, platform, replay, options)
                if isinstance(found, str):
                    failures += 1
                    print(f"{agent}  {batch:5d}  {platform} {replay:6s}  FAILED: {found}")
                    continue
                base = base or found.updates_per_s
                print(
                    f"{agent:6s}  {batch:5d}  {platform} {replay:6s}  {found.steps_per_s:8,.0f}"
                    f"  {found.updates_per_s:9,.0f}  {found.updates_per_s / base:5.2f}"
                    f"  {found.first_update_s:10.1f} s  {found.bound_by.split(';')[0]}",
                    flush=True,
                )
    return 1 if failures else 0


def learners(options: argparse.Namespace) -> list[tuple[str, str]]:
    """On a CPU the two memories are one: its replay on the device is left out beside a GPU."""
    alone = options.platforms == ["cpu"]
    pairs = [(p, r) for p in options.platforms for r in options.replays]
    return [(p, r) for p, r in pairs if alone or p == "gpu" or r == "host"]


def measure(
    agent: str, batch: int, platform: str, replay: str, options: argparse.Namespace
) -> Rates | str:
    """The rates of one run, or why there are none."""
    environ = {**OPEN_MPI, **os.environ}
    environ.pop("JAX_PLATFORMS", None)
    if platform == "cpu":
        environ["JAX_PLATFORMS"] = "cpu"
    with tempfile.TemporaryDirectory(prefix="exarl-") as folder:
        run, errors = Path(folder) / "run", Path(folder) / "errors"
        started = time.monotonic()
        with errors.open("wb") as sink:
            job = subprocess.Popen(
                [
                    *(sys.executable, "-m", "exarl", "train", "--procs", str(options.actors + 1)),
                    *("--agent", agent, "--env", ENVS[agent], "--workflow", "async"),
                    *("--hidden", "[256,256]", "--batch_size", str(batch), "--block_steps", "32"),
                    *("--updates_per_step", "1", "--learning_starts", "1000"),
                    *("--replay_capacity", "100000", "--replay_device", replay),
                    *("--total_steps", "1000000000", "--checkpoint_interval", "3600"),
                    *("--run_dir", str(run), *options.extra),
                ],
                env=environ,
                stdout=subprocess.DEVNULL,
                stderr=sink,
            )
            while job.poll() is None and not updated(run):
                time.sleep(0.1)
                if time.monotonic() - started > options.timeout:
                    break
            else:
                time.sleep(SETTLE_S + options.seconds)
            job.send_signal(signal.SIGTERM)
            job.wait()
        rows = updated(run)
        if len(rows) < 2:
            return " ".join(errors.read_text(errors="replace").split()[-40:]) or "no update"
        summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return rates(rows, summary["bound_by"])


def updated(run: Path) -> list[dict[str, Any]]:
    """The rows written after the first updates."""
    rows = []
    if (path := run / "result.jsonl").exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break  # half written
    return [row for row in rows if row["updates_total"]]


def rates(rows: list[dict[str, Any]], bound_by: str) -> Rates:
    first, end = rows[0]["time_total_s"], rows[-1]
    settled = [row for row in rows[:-1] if row["time_total_s"] > first + SETTLE_S] or rows[:1]
    begin = settled[0]
    span = end["time_total_s"] - begin["time_total_s"]
    steps, updates = (end[n] - begin[n] for n in ("timesteps_total", "updates_total"))
    return Rates(steps / span, updates / span, first, bound_by)


if __name__ == "__main__":
    sys.exit(main())
