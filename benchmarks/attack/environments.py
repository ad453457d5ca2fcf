"""Environments that misbehave in every way, inline and isolated, with ``raise`` and ``restart``.

A failure is exit code 1 with its cause, and the run can be resumed; or a restart that is counted under
its kind. What is only bad manners (another folder, threads, processes, noise) does no harm.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from benchmarks.attack.jobs import Ended, exarl
from benchmarks.attack.runs import trusted
from benchmarks.attack.subjects import AGENT, BAD
from benchmarks.attack.tries import Attempt

TRIES = 220
STEPS = 192
KINDS: dict[str, tuple[str, ...]] = {
    "raise": (
        "raise",
        "exit_0",
        "exit_3",
        "exit_word",
        "unprintable",
        "group",
        "recursion",
        "no_memory",
        "reset",
    ),
    "nan": ("nan", "nan_reward", "inf_reward", "big_reward", "reset_nan"),
    "shape": (
        "shape",
        "more_dims",
        "words",
        "objects",
        "none_seen",
        "none_reward",
        "vector_reward",
    ),
    "crash": ("segfault", "killed", "abort", "os_exit_0", "os_exit_3"),
    "timeout": ("hang",),
}
ISOLATED = ("segfault", "killed", "abort", "os_exit_0", "os_exit_3", "hang", "daemon")
ISOLATED += ("close_stdout", "close_hangs", "variables")
HARMLESS = ("chdir", "thread", "talk", "ignore_sigterm", "seed", "double", "huge_info", "odd_info")
HARMLESS += ("daemon", "close_stdout", "close_hangs", "variables")
UNDECIDED = ("four", "six", "nothing", "make", "get_state", "close_raises", "late_seen")
"""Refused, adapted or survived, as EXARL likes, but in order."""
WAYS = [(kind, way) for kind, ways in KINDS.items() for way in ways]
WAYS += [("", way) for way in (*HARMLESS, *UNDECIDED)]


def prepare(folder: Path) -> None:
    """Nothing is needed."""


def attempt(rng: random.Random, references: Path, work: Path) -> Attempt:
    """Train in an environment that misbehaves once or more."""
    kind, way = rng.choice(WAYS)
    failure = rng.choice(["raise", "restart"])
    isolated = way in ISOLATED or rng.random() < 0.35
    times = rng.choice([1, 1, 2, 4]) if failure == "restart" else 1
    words = ["--env", BAD, "--agent", AGENT, "--total_steps", str(STEPS), "--block_steps", "16"]
    words += ["--way", way, "--at", str(rng.choice([1, 3, 17, 30])), "--times", str(times)]
    words += ["--env_failure", failure, "--checkpoint_interval", rng.choice(["0", "60"])]
    words += ["--envs_per_actor", "1" if failure == "raise" else rng.choice(["1", "2"])]
    if isolated:
        words += ["--env_isolation", "process", "--step_timeout", "2", "--reset_timeout", "10"]
    work.mkdir()
    ended = exarl(["train", "--run_dir", "run", *words], work, limit=45)
    what = " ".join(words[8:])
    broke = judge(ended, work, kind, way, failure)
    if not broke and failure == "raise" and kind and (work / "run" / "config.json").exists():
        again = exarl(trusted(["resume", "run"], rng), work, limit=45)
        broke = again.wrong(0)
        return Attempt(f"{what}; then resume", broke)
    return Attempt(what, broke)


def judge(ended: Ended, work: Path, kind: str, way: str, failure: str) -> str:
    """What is wrong with how the run ended."""
    if ended.code is None:
        return ended.wrong()
    if ended.left:
        return ended.wrong(ended.code) or f"left behind: {ended.left}"
    if kind and failure == "raise":
        if ended.code != 1:
            return f"a failure of the environment ended with exit code {ended.code}: {ended.last[:200]}"
        return "" if ended.err.strip() else "it failed without a word"
    if way in UNDECIDED:
        if ended.code not in (0, 1, 2):
            return f"exit code {ended.code}: {ended.last[:200]}"
        return "" if ended.code == 0 or ended.err.strip() else "it failed without a word"
    if problem := ended.wrong(0):
        return problem
    return strays(work) or (counted(work / "run", kind) if kind else "")


def counted(run: Path, kind: str) -> str:
    """Whether the failures that the environments wrote down are those that the run counted."""
    summary = read(run / "summary.json")
    done = sum(book.stat().st_size for book in run.glob("envs/*/done"))
    found: dict[str, int] = {
        k: v for k, v in summary["env_failures"].items() if k != "environments"
    }
    expected = dict.fromkeys(found, 0) | {kind: done}
    if found != expected:
        return f"{done} failures of kind {kind}, the run counted {found}"
    if summary["env_restarts"] != done:
        return f"{done} failures, {summary['env_restarts']} restarts"
    return ""


def strays(work: Path) -> str:
    """Whether all of a run is in its directory, and complete."""
    outside = [path.name for path in work.iterdir() if path.name not in ("run", "elsewhere")]
    outside += [path.name for path in work.glob("elsewhere/*")]
    if outside:
        return f"written outside the run directory: {', '.join(outside[:3])}"
    if not (work / "run" / "summary.json").exists():
        return "no summary"
    steps = read(work / "run" / "summary.json")["timesteps_total"]
    return "" if steps >= STEPS else f"only {steps} steps"


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
