"""Random layouts, workflows and stops: does every run end with the right code and count every block?

    python benchmarks/stress.py [--runs 500] [--seed 0] [--only N] [--jobs 2] [--keep FOLDER]

Each run is drawn from (seed, number): ``--only N`` repeats run N alone. The environment is CartPole
(ExaCartPole where groups share it), the agent a linear one in NumPy, so that a run takes a second or
two. Checked: it ends in time, exit code 0 (143 after SIGTERM), learners equal where compared, the
policy lag within its bound, no process left, and in summary.json
produced = trained - redundant + dropped + left (redundant only with structure ``buffer``). The
command of every run that fails is printed; the exit code is 0 only if none does.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT_S = 90.0
MOST_RANKS = 7


@dataclass(frozen=True)
class Case:
    """One run: its parameters, and when it is sent SIGTERM (None: not at all)."""

    number: int
    procs: int
    words: tuple[str, ...]
    signal_after: float | None

    @property
    def value(self) -> dict[str, str]:
        pairs = zip(self.words[::2], self.words[1::2], strict=True)
        return {name.removeprefix("--"): value for name, value in pairs}

    def command(self, run: Path) -> list[str]:
        start = (sys.executable, "-m", "exarl", "train", "--run_dir", str(run))
        return [*start, "--procs", str(self.procs), *self.words]


@dataclass(frozen=True)
class Outcome:
    case: Case
    verdict: str  # "" when all is well
    reason: str
    seconds: float


def draw(seed: int, number: int) -> Case:
    """Run ``number``, always the same for the same seed."""
    rng = random.Random(f"{seed} {number}")
    workflow = rng.choice(["async", "rma", "rma", "sync"])
    layouts = [
        (learners, actors, group)
        for learners in ((1,) if workflow == "sync" else (1, 2, 3))
        for actors in range(1, 6)
        for group in (1, 2)
        if learners + actors * group <= MOST_RANKS and (workflow != "async" or learners <= actors)
    ]
    learners, actors, group = rng.choice(layouts)
    chosen: dict[str, Any] = {
        "agent": "plain_agent:Plain-v0",
        "env": "CartPole-v1" if group == 1 else "ExaCartPole-v1",
        "workflow": workflow,
        "learner_procs": learners,
        "process_per_env": group,
        "seed": rng.randrange(1000),
        "envs_per_actor": rng.choice([1, 1, 2, 3]),
        "block_steps": rng.randint(1, 4),
        "checkpoint_interval": rng.choice([0, 0.05, 60]),
        "model.hidden": "[8]",
        "watchdog": LIMIT_S / 3,  # a run that hangs says where
    }
    if workflow != "sync":
        chosen["max_policy_lag"] = rng.choice(["null", "null", 0, 1, 3, 8])
        chosen["average_every"] = rng.choice([1, 1, 2])
        chosen["check_learners"] = rng.choice([0, 1])
    if workflow == "async":
        chosen["blocks_ahead"] = rng.choice([0, 1, 3])
        chosen["order"] = rng.choice(["first_come", "round_robin"])
    if workflow == "rma":
        bounded = chosen["max_policy_lag"] != "null"  # which a buffer refuses
        chosen["structure"] = rng.choice(["queue", "stack", "stack" if bounded else "buffer"])
        chosen["location"] = rng.choice(["distributed", "central"])
        chosen["slots"] = rng.choice([1, 2, 4])
        chosen["when_full"] = rng.choice(["wait", "overwrite"])
        chosen["window_selection"] = rng.choice(["assigned", "random"])
    stop = rng.choice(["total_steps", "n_episodes", "wall_time", "target_reward", "signal"])
    chosen["total_steps"] = rng.randint(1, 600) if stop == "total_steps" else 50_000
    if stop == "n_episodes":
        chosen["n_episodes"] = rng.randint(1, 30)
    elif stop == "target_reward":
        chosen["target_reward"], chosen["reward_window"] = rng.randint(5, 12), rng.randint(1, 5)
    else:
        chosen["wall_time"] = round(rng.uniform(0.01, 1.0), 3) if stop == "wall_time" else 20
    words = [word for name, value in chosen.items() for word in (f"--{name}", str(value))]
    after = round(rng.uniform(0.0, 4.0), 3) if stop == "signal" else None
    return Case(number, learners + actors * group, tuple(words), after)


def run_case(case: Case, folder: Path) -> Outcome:
    """Run it, see that nothing is left of it, and judge."""
    run, output = folder / str(case.number), folder / f"{case.number}.txt"
    started, mark = time.monotonic(), f"EXARL_STRESS={uuid.uuid4().hex}"
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    name, _, value = mark.partition("=")
    with output.open("wb") as file:
        job = subprocess.Popen(
            case.command(run),
            env={**os.environ, "PYTHONPATH": path, name: value},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            if case.signal_after is not None:
                try:
                    job.wait(case.signal_after)
                except subprocess.TimeoutExpired:
                    job.send_signal(signal.SIGTERM)
            code: int | None = job.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
        left = processes(mark)
        deadline = time.monotonic() + 5
        while code is not None and left and time.monotonic() < deadline:
            time.sleep(0.05)
            left = processes(mark)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        job.wait()
    summary = {}
    if (run / "summary.json").exists():
        summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    verdict = "still running" if code is None else judge(case, code, summary, run)
    if code is not None and left:
        verdict += f"; {len(left)} processes left"
    if not verdict:
        shutil.rmtree(run, ignore_errors=True)
        output.unlink()
    reason = str(summary.get("reason", "no summary"))
    return Outcome(case, verdict, reason, time.monotonic() - started)


def judge(case: Case, code: int, summary: dict[str, Any], run: Path) -> str:
    """What is wrong with a run that has ended; empty when nothing is."""
    told = case.signal_after is not None
    # Before EXARL has its handlers the signal ends it the hard way; a shell calls both 143.
    if code in (128 + signal.SIGTERM, -signal.SIGTERM) and told:
        if not summary:
            return ""  # told before there was anything to sum up
    elif code:
        return f"exit code {code}"
    if not summary:
        return "no summary"
    blocks = summary["blocks"]
    if "produced" in blocks:
        ended = blocks["trained"] - blocks["redundant"] + blocks["dropped"] + blocks["left"]
        if ended != blocks["produced"]:
            return f"the blocks do not add up: {blocks}"
        if blocks["redundant"] and case.value.get("structure") != "buffer":
            return f"blocks read twice: {blocks}"
    bound = case.value.get("max_policy_lag", "null")
    result = run / "result.jsonl"
    if bound != "null" and result.exists():
        rows = [json.loads(line) for line in result.read_text(encoding="utf-8").splitlines()]
        worst = max((row["policy_lag_max"] for row in rows), default=0)
        if worst > int(bound) and case.value.get("learner_procs") == "1":
            return f"lag {worst} over the bound {bound}"
    return ""


def processes(mark: str) -> list[int]:
    """The living processes that were started with ``mark`` in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            marked = mark.encode() in (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if marked and state not in "ZX":
            found.append(int(entry.name))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="+", help="the numbers of the runs to make")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--minutes", type=float, help="begin no run after so long")
    parser.add_argument("--keep", type=Path, help="keep the run directories of failures here")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="exarl-stress-"))
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    outcomes: list[Outcome] = []

    def one(number: int) -> None:
        if time.monotonic() > end:
            return
        case = draw(options.seed, number)
        outcome = run_case(case, folder)
        outcomes.append(outcome)
        if outcome.verdict:
            command = shlex.join(case.command(Path("RUN")))
            when = f" (SIGTERM after {case.signal_after} s)" if case.signal_after else ""
            print(f"--only {number}: {outcome.verdict}\n  {command}{when}", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, options.only or range(options.runs)))
    print("workflow  runs  failed  longest")
    for workflow in ("sync", "async", "rma"):
        mine = [o for o in outcomes if o.case.value["workflow"] == workflow]
        failed, longest = (
            sum(bool(o.verdict) for o in mine),
            max((o.seconds for o in mine), default=0),
        )
        print(f"{workflow:8s}  {len(mine):4d}  {failed:6d}  {longest:5.1f} s")
    print(
        "stopped by: "
        + ", ".join(f"{n} {r}" for r, n in Counter(o.reason for o in outcomes).most_common())
    )
    failed = sum(bool(o.verdict) for o in outcomes)
    if not failed and options.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
