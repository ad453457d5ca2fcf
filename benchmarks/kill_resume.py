r"""Kill a run at random times, resume it, and see whether it ends as if it had never been killed.

    python benchmarks/kill_resume.py [--kills 20] [--seed N] [--keep FOLDER]

Half of the kills fall on a run of one rank, half on one of three (``exarl train --procs 3``), DQN in
CartPole-v1 with the sync workflow. A kill is SIGKILL to every process of the job at once, at a time
drawn from the whole duration of the undisturbed run, start-up included. The run is then continued
with ``exarl resume``, or with the same command again if it had not yet come to a run directory.

Equal means: every array of the last checkpoint (weights, optimiser, replay, episodes), its counters
and random states, and every column of result.jsonl and progress.csv that does not measure time.
The exit code is 0 only if all runs are equal to the undisturbed one.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exarl.records.checkpoint import load_newest
from exarl.records.metrics import read_rows

EXARL = [sys.executable, "-m", "exarl"]
TIMING = (
    *("time_total_s", "steps_per_s", "updates_per_s"),
    *("core_hours_simulated", "core_hours_learner", "core_hours_total"),
)
PATIENCE_S = 300


@dataclass(frozen=True)
class Outcome:
    """One kill: when it came, how far the run was, where it continued, and how it ended."""

    ranks: int
    seconds: float
    reached: int
    resumed: str
    verdict: str

    @property
    def equal(self) -> bool:
        return self.verdict == "equal"


def command(path: Path, ranks: int, steps: int) -> list[str]:
    words = ["--run_dir", str(path), "--total_steps", str(steps), "--seed", "5"]
    return [*EXARL, "train", *words, "--checkpoint_interval", "0.3", "--procs", str(ranks)]


# -- what is compared --------------------------------------------------------------------------------


def fingerprint(run: Path) -> dict[str, str]:
    """Digests of all that equal runs have equal."""
    checkpoint = load_newest(run / "checkpoints")
    if checkpoint is None:
        return {}
    arrays = {
        f"{stem}/{name}": [str(array.dtype), list(array.shape), array.tobytes().hex()]
        for stem, named in checkpoint.arrays.items()
        for name, array in named.items()
    }
    numbers = checkpoint.numbers
    for name in ("seconds", "simulated_core_s", "learner_core_s"):
        numbers["counters"].pop(name)
    with (run / "progress.csv").open(encoding="utf-8", newline="") as file:
        table = [without_timing(row) for row in csv.DictReader(file)]
    rows = [without_timing(row) for row in read_rows(run / "result.jsonl")]
    parts = {"arrays": arrays, "numbers": numbers, "result.jsonl": rows, "progress.csv": table}
    return {name: digest(part) for name, part in parts.items()}


def without_timing(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in TIMING}


def digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


# -- processes ---------------------------------------------------------------------------------------


def processes(mark: str) -> list[int]:
    """Every process with ``mark`` in the environment it was started with."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue  # gone, or not ours
    return found


def kill_at(words: list[str], seconds: float) -> None:
    """Start a job and SIGKILL all of its processes after ``seconds``."""
    mark = uuid.uuid4().hex
    job = subprocess.Popen(
        words,
        env={**os.environ, "EXARL_KILL_RESUME": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(seconds)
    while pids := processes(mark):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        job.poll()
        time.sleep(0.01)
    job.wait()


# -- one kill ----------------------------------------------------------------------------------------


def survive(
    path: Path, ranks: int, steps: int, seconds: float, expected: dict[str, str]
) -> Outcome:
    """Train, kill, resume, compare."""
    again = command(path, ranks, steps)
    kill_at(again, seconds)
    rows = read_rows(path / "result.jsonl")
    reached = int(rows[-1]["timesteps_total"]) if rows else 0
    if (path / "config.json").exists():
        again = [*EXARL, "resume", str(path)]
    ended = subprocess.run(again, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    note = re.search(r"continuing at step ([\d,]+)", ended.stderr)
    resumed = note.group(1) if note else "start"
    if ended.returncode:
        last = ended.stderr.strip().splitlines()[-1:] or [""]
        return Outcome(ranks, seconds, reached, resumed, f"exit {ended.returncode}: {last[0]}")
    found = fingerprint(path)
    differing = [name for name in expected if found.get(name) != expected[name]]
    verdict = f"different: {', '.join(differing)}" if differing else "equal"
    return Outcome(ranks, seconds, reached, resumed, verdict)


def undisturbed(path: Path, ranks: int, steps: int) -> tuple[dict[str, str], float]:
    """The fingerprint of the run that nobody kills, and the seconds it takes."""
    started = time.perf_counter()
    subprocess.run(command(path, ranks, steps), check=True, capture_output=True, timeout=PATIENCE_S)
    return fingerprint(path), time.perf_counter() - started


def show(number: int, outcome: Outcome) -> None:
    print(
        f"{number:4d} {outcome.ranks:6d} {outcome.seconds:9.2f} {outcome.reached:9,d}"
        f" {outcome.resumed:>9}  {outcome.verdict}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=12_000, help="length of each run")
    parser.add_argument("--seed", type=int, default=None, help="of the times of the kills")
    parser.add_argument("--keep", type=Path, help="leave all runs in this folder")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="exarl-kill-"))
    outcomes: list[Outcome] = []
    print("kill  ranks  killed_s  at_step   resumed  verdict")
    for ranks, kills in ((1, options.kills - options.kills // 2), (3, options.kills // 2)):
        if not kills:
            continue
        expected, duration = undisturbed(folder / f"whole-{ranks}", ranks, options.steps)
        for _ in range(kills):
            path = folder / f"killed-{len(outcomes)}"
            seconds = chance.uniform(0.1, duration)
            outcomes.append(survive(path, ranks, options.steps, seconds, expected))
            show(len(outcomes), outcomes[-1])
    if options.keep is None:
        shutil.rmtree(folder)
    good = sum(outcome.equal for outcome in outcomes)
    print(f"{good} of {len(outcomes)} killed runs ended equal to the undisturbed one")
    return 0 if good == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
