"""Efficiency of N slow environments at once.

    python benchmarks/latency.py [--actors 16 64] [--workflows async rma] [--seconds 20]
                                 [--times fixed exponential] [--extra --blocks_together 1]

ExaLatency-v0 sleeps 10 ms per step (fixed, or exponential of the same mean). Efficiency is
steps/s x 0.010 / N over the steady part of the run, training included. Also printed: memory of all
ranks together (PSS), the time from the start of the job to the first trained block, and of an actor,
on average, its memory and the CPU time that it took until then. 257 ranks on 16 cores:

    python benchmarks/latency.py --actors 256 --workflows async --times fixed

Open MPI is allowed to run as root; EXARL's launcher lets it start more ranks than there are cores. In a
container whose /dev/shm is small, OMPI_MCA_btl_sm_backing_directory=/tmp (Open MPI 4:
OMPI_MCA_btl_vader_backing_directory) puts the ranks' shared memory elsewhere.
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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MEAN_S = 0.010


@dataclass(frozen=True)
class Measured:
    efficiency: float
    steps_per_s: float
    memory_mb: float
    first_block_s: float
    actor_mb: float
    actor_start_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--actors", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--workflows", nargs="+", default=["async", "rma"])
    parser.add_argument("--times", nargs="+", default=["fixed", "exponential"])
    parser.add_argument("--seconds", type=float, default=20.0, help="steady part of each run")
    parser.add_argument("--extra", nargs=argparse.REMAINDER, default=[], help="more parameters")
    options = parser.parse_args()
    head = "workflow  actors  times        efficiency  steps/s  memory  first block"
    print(f"{head}  of an actor: memory  CPU until then")
    for actors in options.actors:
        for workflow in options.workflows:
            for times in options.times:
                found = measure(workflow, actors, times, options.seconds, options.extra)
                print(
                    f"{workflow:8s}  {actors:6d}  {times:11s}  {found.efficiency:10.3f}"
                    f"  {found.steps_per_s:7,.0f}  {found.memory_mb / 1024:3.1f} GB"
                    f"  {found.first_block_s:9.1f} s"
                    f"  {found.actor_mb:16.1f} MB  {found.actor_start_s:12.2f} s",
                    flush=True,
                )


def measure(workflow: str, actors: int, times: str, seconds: float, extra: list[str]) -> Measured:
    environ = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:
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
            stdout=said,
            stderr=said,
            env=environ,
        )
        first_block = memory = None
        actor_mb = actor_start = 0.0
        while job.poll() is None:
            time.sleep(0.2)
            if first_block is None and rows_of(run):
                first_block = time.monotonic() - started
                actor_start = mean(cpu_seconds(pid) for pid in actors_of(job.pid))
            settled = first_block is not None and (
                time.monotonic() - started > first_block + seconds / 2
            )
            if settled and memory is None:
                memory = sum(pss_kb(pid) for pid in family_of(job.pid)) / 1024
                actor_mb = mean(pss_kb(pid) / 1024 for pid in actors_of(job.pid))
            if time.monotonic() - started > 300 + 3 * seconds:
                job.send_signal(signal.SIGTERM)
        rows = rows_of(run)
        if job.returncode or not rows:
            said.seek(0)
            raise SystemExit(said.read().decode(errors="replace")[-3000:])
    end = rows[-1]
    begin = next(row for row in rows if row["time_total_s"] > end["time_total_s"] - seconds)
    span = end["time_total_s"] - begin["time_total_s"]
    rate = (end["timesteps_total"] - begin["timesteps_total"]) / span
    efficiency = rate * MEAN_S / actors
    return Measured(efficiency, rate, memory or 0.0, first_block or 0.0, actor_mb, actor_start)


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


def family_of(root: int) -> set[int]:
    """A process and all below it."""
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
            return family
        family |= more


def actors_of(root: int) -> list[int]:
    """The ranks of a job other than the learner, which is rank 0."""
    return [pid for pid in family_of(root) if (rank := rank_of(pid)) is not None and rank > 0]


def rank_of(pid: int) -> int | None:
    """The MPI rank of a process that runs EXARL; None: it is no rank."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    if b"exarl" not in command or b"train" not in command:
        return None
    named = dict(word.split(b"=", 1) for word in words if b"=" in word)
    rank = named.get(b"PMI_RANK") or named.get(b"OMPI_COMM_WORLD_RANK")
    return int(rank) if rank is not None else None


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / max(len(numbers), 1)


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
