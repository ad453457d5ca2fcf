r"""Speed of EXARL's DQN beside its peers': environment steps/s, one update of 64 for every step.

The work is the same for all: CartPole-v1, one environment, MLP [64, 128], learning rate 1e-3,
replay of 50,000, learning from step 1,000; steps/s is taken between steps 2,000 and 12,000, so
start-up and compilation are out of it. Every measurement is a process of its own, held to one
compute thread. The contestants take turns, round after round, so that the noise of a shared
machine falls on all of them; the ratio is the median of the ratios of the single rounds.

    python benchmarks/dqn_speed.py \
        --sb3-python SB3_ENV/bin/python --sbx-python SB3_ENV/bin/python \
        --cleanrl-python CLEANRL_ENV/bin/python --cleanrl-script CLEANRL/cleanrl/dqn_jax.py

EXARL runs with the Python that runs this file. A peer whose options are absent is left out, and
named as left out. `--cpu N` holds every process to one core: without it the runtime of JAX may
still hand work to a second one (the column "cores" shows it). `--markdown FILE` writes the table.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from peers.window import FIRST_STEP, LAST_STEP, versions

PEERS_DIR = Path(__file__).resolve().parent / "peers"
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NPROC": "1",
    "JAX_PLATFORMS": "cpu",
}
EXARL_OPTIONS = {
    "--agent": "DQN-v0",
    "--env": "CartPole-v1",
    "--total_steps": "14000",
    "--batch_size": "64",
    "--updates_per_step": "1",
    "--learning_starts": "1000",
    "--replay_capacity": "50000",
    "--hidden": "[64,128]",
}
EXARL_PACKAGES = ("exarl", "jax", "torch", "gymnasium", "numpy")

FAILURES = (RuntimeError, OSError, KeyError, ValueError, subprocess.TimeoutExpired)

Launcher = Callable[[list[str]], str]


@dataclass
class Sample:
    """One measurement: the speed, the mean number of busy cores, and what it ran on."""

    steps_per_s: float
    versions: dict[str, str]
    cores: float = 0.0


@dataclass
class Contestant:
    """A name, how to measure it with a given seed, and what was measured, by round."""

    name: str
    measure: Callable[[int, Launcher], Sample]
    samples: dict[int, Sample] = field(default_factory=dict)


def launch(command: list[str], cpu: int | None, timeout: float) -> str:
    """Run a command on one thread and return its standard output; raise when it fails."""
    pin = None if cpu is None else lambda: os.sched_setaffinity(0, {cpu})
    done = subprocess.run(
        command,
        env={**os.environ, **ONE_THREAD},
        capture_output=True,
        text=True,
        timeout=timeout,
        preexec_fn=pin,
        check=False,
    )
    if done.returncode != 0:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        raise RuntimeError(f"{shlex.join(command)} exited with {done.returncode}:\n{tail}")
    return done.stdout


def measure_peer(command: list[str], seed: int, run: Launcher) -> Sample:
    """Run one of the runners in peers/ and read its RESULT line."""
    output = run([*command, "--seed", str(seed)])
    lines = [line for line in output.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise RuntimeError(f"no RESULT line from {shlex.join(command)}")
    record = json.loads(lines[-1].removeprefix("RESULT "))
    return Sample(float(record["steps_per_s"]), record["versions"])


def measure_exarl(extra: list[str], seed: int, run: Launcher) -> Sample:
    """Train with EXARL's command line and take the speed from the result file it writes."""
    command = [sys.executable, "-m", "exarl", "train", "--seed", str(seed)]
    command += [word for pair in EXARL_OPTIONS.items() for word in pair] + extra
    with tempfile.TemporaryDirectory() as folder:
        run([*command, "--output_dir", folder])
        files = sorted(Path(folder).glob("*/result.jsonl"))
        if len(files) != 1:
            raise RuntimeError(f"expected one */result.jsonl from EXARL, found {len(files)}")
        rate = rate_of_rows(files[0].read_text().splitlines())
    return Sample(rate, versions(*EXARL_PACKAGES))


def rate_of_rows(lines: list[str]) -> float:
    """Steps/s between the first row at or after FIRST_STEP and the last one up to LAST_STEP."""
    rows = [json.loads(line) for line in lines if line.strip()]
    points = [(int(row["timesteps_total"]), float(row["time_total_s"])) for row in rows]
    inside = [point for point in points if FIRST_STEP <= point[0] <= LAST_STEP]
    wanted = (LAST_STEP - FIRST_STEP) * 0.8
    if len(inside) < 2 or inside[-1][0] - inside[0][0] < wanted:
        counts = [steps for steps, _ in points]
        raise RuntimeError(
            f"the rows of result.jsonl span less than {wanted:.0f} of the steps between "
            f"{FIRST_STEP} and {LAST_STEP}: {counts[:5]} ... {counts[-3:]}"
        )
    (first_step, first_time), (last_step, last_time) = inside[0], inside[-1]
    return (last_step - first_step) / (last_time - first_time)


def parse_args() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; then one up")
    parser.add_argument("--sb3-python", help="Python with stable-baselines3")
    parser.add_argument("--sbx-python", help="Python with sbx-rl")
    parser.add_argument("--cleanrl-python", help="Python with what dqn_jax.py imports")
    parser.add_argument("--cleanrl-script", help="your copy of CleanRL's cleanrl/dqn_jax.py")
    parser.add_argument("--no-exarl", action="store_true", help="measure the peers only")
    parser.add_argument("--exarl-args", default="", help="more options for EXARL, as one string")
    parser.add_argument("--cpu", type=int, help="hold every process to this core")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a measurement")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    return parser.parse_args()


def contestants_of(args: argparse.Namespace) -> tuple[list[Contestant], list[str]]:
    """Those the options ask for, and a line about each of the others."""
    sb3, cleanrl = str(PEERS_DIR / "sb3_dqn.py"), str(PEERS_DIR / "cleanrl_dqn.py")
    peers: dict[str, tuple[list[str | None], str]] = {
        "sb3": ([args.sb3_python, sb3, "--peer", "sb3"], "--sb3-python"),
        "sbx": ([args.sbx_python, sb3, "--peer", "sbx"], "--sbx-python"),
        "cleanrl_jax": (
            [args.cleanrl_python, cleanrl, "--script", args.cleanrl_script],
            "--cleanrl-python and --cleanrl-script",
        ),
    }
    chosen: list[Contestant] = []
    left_out: list[str] = []
    if args.no_exarl:
        left_out.append("exarl (--no-exarl)")
    elif importlib.util.find_spec("exarl") is None:
        left_out.append(f"exarl (not installed for {sys.executable})")
    else:
        extra = shlex.split(args.exarl_args)
        chosen.append(Contestant("exarl", lambda seed, run: measure_exarl(extra, seed, run)))
    for name, (parts, needs) in peers.items():
        command = [part for part in parts if part is not None]
        if len(command) < len(parts):
            left_out.append(f"{name} (needs {needs})")
        else:
            chosen.append(peer(name, command))
    return chosen, left_out


def peer(name: str, command: list[str]) -> Contestant:
    """A contestant measured by a runner in peers/."""
    return Contestant(name, lambda seed, run: measure_peer(command, seed, run))


def busy_seconds() -> float:
    """CPU seconds of the child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_rounds(contestants: list[Contestant], args: argparse.Namespace) -> int:
    """Measure everyone once a round, the order shifted by one each time; returns the failures."""
    failures = 0

    def run(command: list[str]) -> str:
        return launch(command, args.cpu, args.timeout)

    for turn in range(args.rounds):
        shift = turn % max(1, len(contestants))
        for who in contestants[shift:] + contestants[:shift]:
            wall, busy = time.perf_counter(), busy_seconds()
            try:
                sample = who.measure(args.seed + turn, run)
            except FAILURES as error:
                failures += 1
                print(f"round {turn + 1}: {who.name} FAILED: {error}", flush=True)
                continue
            sample.cores = (busy_seconds() - busy) / (time.perf_counter() - wall)
            who.samples[turn] = sample
            print(f"round {turn + 1}: {who.name} {sample.steps_per_s:.0f} steps/s", flush=True)
    return failures


def ratio_to(who: Contestant, exarl: Contestant | None) -> str:
    """EXARL's speed over this one's: the median of the ratios of the rounds both have."""
    if exarl is None or who is exarl:
        return "-"
    shared = exarl.samples.keys() & who.samples.keys()
    ratios = [exarl.samples[i].steps_per_s / who.samples[i].steps_per_s for i in shared]
    return f"{statistics.median(ratios):.2f}" if ratios else "-"


def table_rows(contestants: list[Contestant]) -> list[list[str]]:
    """The cells of the table, a header first, the contestants in their order."""
    exarl = next((who for who in contestants if who.name == "exarl"), None)
    rows = [["DQN, CartPole-v1", "steps/s [range]", "EXARL / it", "cores", "rounds"]]
    for who in contestants:
        speeds = [sample.steps_per_s for sample in who.samples.values()]
        if not speeds:
            rows.append([who.name, "failed", "-", "-", "0"])
            continue
        cores = statistics.median(sample.cores for sample in who.samples.values())
        speed = f"{statistics.median(speeds):.0f} [{min(speeds):.0f}-{max(speeds):.0f}]"
        rows.append([who.name, speed, ratio_to(who, exarl), f"{cores:.2f}", str(len(speeds))])
    return rows


def notes_of(contestants: list[Contestant], left_out: list[str]) -> list[str]:
    """Versions of each contestant, and who was left out."""
    notes: list[str] = []
    for who in contestants:
        for sample in list(who.samples.values())[:1]:
            used = ", ".join(f"{name} {number}" for name, number in sample.versions.items())
            notes.append(f"{who.name}: {used}")
    return notes + [f"left out: {line}" for line in left_out]


def print_table(rows: list[list[str]], notes: list[str]) -> None:
    """The table with aligned columns, then the notes."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    print()
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    print("\n" + "\n".join(notes))


def write_markdown(path: Path, rows: list[list[str]], notes: list[str]) -> None:
    """The same as a Markdown table and a list."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    path.write_text("\n".join(lines + [""] + [f"- {note}" for note in notes]) + "\n")


def main() -> int:
    """Measure, print, and write; 1 when nothing could be measured or a measurement failed."""
    args = parse_args()
    contestants, left_out = contestants_of(args)
    if not contestants:
        print("nothing to measure; left out: " + "; ".join(left_out))
        return 1
    failures = run_rounds(contestants, args)
    rows, notes = table_rows(contestants), notes_of(contestants, left_out)
    print_table(rows, notes)
    if args.markdown is not None:
        write_markdown(args.markdown, rows, notes)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
