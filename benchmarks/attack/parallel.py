"""Random layouts under mpiexec, stopped in every way: none hangs, and no step is lost or there twice.

benchmarks/stress.py draws the layouts. Here the agent remembers every step, environments count theirs
and have states of up to 256 KiB: each checkpoint can be checked step by step. Ranks are killed as
well, and every run is resumed.
"""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

from benchmarks import stress
from benchmarks.attack.jobs import Ended, Sent, exarl
from benchmarks.attack.runs import Step, books, named_step, stored_spec, trusted
from benchmarks.attack.subjects import AGENT, COUNTED
from benchmarks.attack.tries import Attempt

from exarl.errors import CheckpointError
from exarl.records.checkpoint import list_checkpoints, load_checkpoint

TRIES = 100
LIMIT_S = 100.0
RANKS = 6


def prepare(folder: Path) -> None:
    """Nothing is needed."""


def attempt(rng: random.Random, references: Path, work: Path) -> Attempt:
    """Train, stop, check every checkpoint, resume, check again."""
    values, procs = draw(rng)
    stop = rng.choice(["total_steps", "total_steps", "wall_time", "term", "term", "kill"])
    values |= {"total_steps": 50_000, "wall_time": 20}
    sent: list[Sent] = []
    if stop == "total_steps":
        values["total_steps"] = rng.randint(1, 900)
    elif stop == "wall_time":
        values["wall_time"] = round(rng.uniform(0.01, 1.0), 3)
    elif stop == "term":
        sent = [Sent(rng.uniform(0.5, 4.0), signal.SIGTERM, to_all=False)]
    else:
        sent = [Sent(rng.uniform(1.0, 4.0), signal.SIGKILL, rank=rng.randrange(procs))]
    words = ["--procs", str(procs)]
    words += [word for name, value in values.items() for word in (f"--{name}", str(value))]
    work.mkdir()
    ended = exarl(["train", "--run_dir", "run", *words], work, limit=LIMIT_S, sent=sent)
    when = f" ({signal.Signals(sent[0].number).name} after {sent[0].after:.2f} s)" if sent else ""
    what = f"train {' '.join(words)}{when}"
    kept = Books(work / "run", values)
    problem = judged(ended, stop, work / "run") or kept.check(stop != "kill")
    return Attempt(what, problem or resumed(rng, work, kept))


def draw(rng: random.Random) -> tuple[dict[str, Any], int]:
    """Parameters and number of ranks of a layout without groups."""
    while True:
        case = stress.draw(rng.randrange(1 << 30), 0)
        if case.value["process_per_env"] == "1" and case.procs <= RANKS:
            break
    values: dict[str, Any] = dict(case.value)
    for name in ("n_episodes", "target_reward", "reward_window", "model.hidden", "process_per_env"):
        values.pop(name, None)
    if rng.random() < 0.2:
        kept = ("seed", "envs_per_actor", "block_steps", "checkpoint_interval", "watchdog")
        values = {name: values[name] for name in kept} | {"workflow": "seed"}
    if values["workflow"] == "rma" and rng.random() < 0.7:  # nothing is dropped: books can be kept
        values |= {"structure": rng.choice(["queue", "stack"]), "when_full": "wait"}
    values |= {"agent": AGENT, "env": COUNTED, "state_kb": rng.choice([0, 1, 16, 64, 256])}
    values["checkpoint_interval"] = rng.choice([0, 0, values["checkpoint_interval"]])
    return values, max(case.procs, 2)


def judged(ended: Ended, stop: str, run: Path) -> str:
    """What is wrong with the end of the job."""
    if ended.code is None or ended.left:
        return ended.wrong(ended.code or 0)
    codes = {"term": (143, -15, 0), "kill": range(-255, 256)}.get(stop, (0,))
    if ended.code not in codes:
        return f"exit code {ended.code}: {ended.last[:200]}"
    return "" if stop == "kill" else balanced(run)


def balanced(run: Path) -> str:
    """Whether every block that was produced is accounted for."""
    blocks = blocks_of(run)
    if "produced" not in blocks:
        return ""
    ended = blocks["trained"] - blocks["redundant"] + blocks["dropped"] + blocks["left"]
    return "" if ended == blocks["produced"] else f"the books do not balance: {blocks}"


class Books:
    """Knows which steps a run has given up in order, and finds those that are lost."""

    def __init__(self, run: Path, values: dict[str, Any]) -> None:
        self._run = run
        self._kept = values.get("structure") != "buffer" and values.get("when_full") != "overwrite"
        self.block = int(values["block_steps"]) * int(values["envs_per_actor"])
        self._given_up: set[Step] = set()

    def check(self, in_order: bool) -> str:
        """The first fault in any checkpoint, where the layout drops and repeats nothing.

        At the end of a job that stops ``in_order`` actors give up the blocks in hand, which the
        summary counts as dropped; the last checkpoint may lack those steps, no other may lack any.
        """
        if not self._kept or not (self._run / "config.json").exists():
            return ""
        dropped = in_order and blocks_of(self._run).get("dropped", 0)
        for place, path in enumerate(list_checkpoints(self._run / "checkpoints")):
            try:
                missing, problem = books(load_checkpoint(path), stored_spec(self._run))
            except CheckpointError:
                continue  # the job was killed while it removed it
            missing -= self._given_up
            if not place and len(missing) <= dropped * self.block:
                self._given_up |= missing
            elif missing and not problem:
                problem = f"{len(missing)} steps are missing, such as {named_step(min(missing))}"
            if problem:
                return f"checkpoint {path.name}: {problem}"
        return ""


def blocks_of(run: Path) -> dict[str, int]:
    """What became of the blocks, by summary.json; empty when there is none."""
    path = run / "summary.json"
    return dict(json.loads(path.read_text())["blocks"]) if path.exists() else {}


def resumed(rng: random.Random, work: Path, kept: Books) -> str:
    """Continue the run for some more steps; what is wrong with that."""
    run = work / "run"
    if not (run / "config.json").exists():
        return ""
    found = list_checkpoints(run / "checkpoints")
    steps = (int(found[0].name) if found else 0) + rng.randint(1, 40) * kept.block
    words = ["resume", "run", "--total_steps", str(steps), "--wall_time", "null"]
    ended = exarl(trusted(words, rng), work, limit=LIMIT_S)
    problem = ended.wrong(0) or kept.check(in_order=True)
    return problem and f"resumed: {problem}"
