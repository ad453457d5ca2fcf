"""Efficiency of N slow environments at once.

    python benchmarks/latency.py [--actors 16 64] [--workflows async rma] [--seconds 20]

ExaLatency-v0 sleeps 10 ms per step (fixed, or exponential of the same mean). Efficiency is
steps/s x 0.010 / N over the steady part of the run, training included. Also printed: memory of all
ranks together (PSS) and the time from the start of the job to the first trained block.
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

MEAN_S = 0.010


@dataclass(frozen=True)
class Measured:
    efficiency: float
    steps_per_s: float
    memory_mb: float
    first_block_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--actors", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--workflows", nargs="+", default=["async", "rma"])
    parser.add_argument("--seconds", type=float, default=20.0, help="steady part of each run")
    parser.add_argument("--extra", nargs=argparse.REMAINDER, default=[], help="more parameters")
    options = parser.parse_args()
    print("workflow  actors  times        efficiency  steps/s  memory  first block")
    for actors in options.actors:
        for workflow in options.workflows:
            for times in ("fixed", "exponential"):
                found = measure(workflow, actors, times, options.seconds, options.extra)
                print(
                    f"{workflow:8s}  {actors:6d}  {times:11s}  {found.efficiency:10.3f}"
                    f"  {found.steps_per_s:7,.0f}  {found.memory_mb / 1024:3.1f} GB"
                    f"  {found.first_block_s:6.1f} s",
                    flush=True,
                )


def measure(workflow: str, actors: int, times: str, seconds: float, extra: list[str]) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        started = time.monotonic()
        job = subprocess.Popen(
            [
                *(sys.executable, "-m", "exarl", "train", "--procs", str(actors + 1)),
                *("--env", "ExaLatency-v0", "--env.distribution", times, "--workflow", workflow),
                *("--env.mean_seconds", str(MEAN_S), "--run_dir", str(run)),
                # As many updates as PPO makes of a step: ten epochs in minibatches of 64.
                *("--updates_per_step", "0.15", "--learning_starts", "500"),
                *("--wall_time", str(seconds * 1.5), "--checkpoint_interval", "3600", *extra),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        first_block = memory = None
        while job.poll() is None:
            time.sleep(0.2)
            if first_block is None and rows_of(run):
                first_block = time.monotonic() - started
            settled = first_block is not None and (
                time.monotonic() - started > first_block + seconds / 2
            )
            if settled and memory is None:
                memory = tree_memory_mb(job.pid)
            if time.monotonic() - started > 300 + 3 * seconds:
                job.send_signal(signal.SIGTERM)
        rows = rows_of(run)
    end = rows[-1]
    begin = next(row for row in rows if row["time_total_s"] > end["time_total_s"] - seconds)
    span = end["time_total_s"] - begin["time_total_s"]
    rate = (end["timesteps_total"] - begin["timesteps_total"]) / span
    return Measured(rate * MEAN_S / actors, rate, memory or 0.0, first_block or 0.0)


def rows_of(run: Path) -> list[dict[str, float]]:
    path = run / "result.jsonl"
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def tree_memory_mb(root: int) -> float:
    """PSS of a process and all below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(text.rsplit(")", 1)[1].split()[1])
    family = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        if not more:
            break
        family |= more
    return sum(pss_kb(pid) for pid in family) / 1024


def pss_kb(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
