"""Training killed at any moment or file operation, or let down by the disk, and resumed.

However it was interrupted, it must end bit for bit as if it had not been: the last checkpoint's arrays
and numbers, and the rows of progress.csv. A disk that fails is one line, exit code 1 or 2.
"""

from __future__ import annotations

import errno
import random
import signal
from dataclasses import dataclass
from pathlib import Path

from benchmarks.attack.jobs import (
    CHANGING,
    COUNT,
    FAIL_ON,
    FAIL_ONCE,
    KILL_AFTER,
    KILL_BEFORE,
    KINDS,
    Ended,
    Fault,
    Sent,
    exarl,
    have_faults,
)
from benchmarks.attack.runs import OFTEN, SHORT, TRAIN, differences, fingerprint, reference
from benchmarks.attack.tries import Attempt

TRIES = 150
SCOPE = "victim"
ERRORS = ("ENOSPC", "EIO", "EMFILE", "EROFS", "EDQUOT", "EACCES", "ESTALE", "ENOMEM")
DEEP = ("train", "--agent", "DQN-v0", "--env", "CartPole-v1", *SHORT, "--learning_starts", "64")
LAYOUTS: dict[str, tuple[tuple[str, ...], int, int]] = {  # words, ranks, how often it is chosen
    "one": ((*TRAIN, *OFTEN), 1, 60),
    "evaluated": ((*TRAIN, *OFTEN, "--eval_interval", "200", "--eval_episodes", "2"), 1, 15),
    "isolated": ((*TRAIN, *OFTEN, "--env_isolation", "process"), 1, 8),
    "three": ((*TRAIN, *OFTEN, "--procs", "3"), 3, 12),
    "deep": ((*DEEP, "--hidden", "[8]", *OFTEN), 1, 5),
}


@dataclass(frozen=True)
class Disturbance:
    """One interruption; both None: none."""

    fault: Fault | None = None
    sent: Sent | None = None

    def __str__(self) -> str:
        if self.sent is not None:
            return f"{signal.Signals(self.sent.number).name} after {self.sent.after:.3f} s"
        if self.fault is None:
            return "nothing"
        kinds = "|".join(name for name, bit in KINDS.items() if bit & self.fault.kinds)
        how = {FAIL_ONCE: "fails", FAIL_ON: "fails from then on"}.get(self.fault.how, "kills")
        error = f" ({errno.errorcode[self.fault.error]})" if self.fault.error else ""
        return f"operation {self.fault.number} of {kinds} {how}{error}"


def prepare(folder: Path) -> None:
    """The undisturbed runs, and how many file operations and seconds they take."""
    for name, (words, _, _) in LAYOUTS.items():
        reference(folder, f"kills-{name}", *words)
        if have_faults():
            work = folder / f"kills-{name}-counted"
            work.mkdir(exist_ok=True)
            everything = Fault(SCOPE, sum(KINDS.values()), 0, COUNT)
            exarl([*words, "--run_dir", SCOPE], work, limit=180, fault=everything)


def attempt(rng: random.Random, references: Path, work: Path) -> Attempt:
    """Disturb a run one to three times, resume it, compare."""
    weights = [share for _, _, share in LAYOUTS.values()]
    name = rng.choices(list(LAYOUTS), weights)[0]
    words, ranks, _ = LAYOUTS[name]
    work.mkdir(parents=True)
    counted = references / f"kills-{name}-counted.calls"
    calls = max(50, int(counted.read_text())) if counted.exists() else 500
    done: list[str] = []
    for part in range(rng.choice([1, 1, 1, 2, 3])):
        disturbance = draw(rng, calls, 0.3 if ranks == 1 and name != "deep" else 4.0)
        done.append(f"{'resume' if part else 'train'}: {disturbance}")
        ended = run(words, work, disturbance, ranks, rng)
        what = f"{name}; {'; '.join(done)}"
        if problem := interrupted_badly(ended, disturbance, ranks):
            return Attempt(what, problem)
    ended = run(words, work, Disturbance(), ranks, rng)
    problem = ended.wrong(0)
    expected = fingerprint(references / f"kills-{name}" / "run")
    return Attempt(what, problem or differences(work / SCOPE, expected))


def run(
    words: tuple[str, ...], work: Path, disturbance: Disturbance, ranks: int, rng: random.Random
) -> Ended:
    """Train, or resume where there is something to resume."""
    started = (work / SCOPE / "config.json").exists()
    given = ["resume", SCOPE] if started else [*words, "--run_dir", SCOPE]
    fault, variables = disturbance.fault, {}
    if ranks > 1 and fault is not None:
        fault, variables = None, fault.variables(rng.choice([0, 0, 1]))
    sent = [disturbance.sent] if disturbance.sent is not None else []
    return exarl(given, work, limit=90, fault=fault, sent=sent, variables=variables)


def draw(rng: random.Random, calls: int, seconds: float) -> Disturbance:
    """A kill in time, a kill at a file operation, a file operation that fails, or a stop signal."""
    way = rng.choice(["time", "call", "call", "fail", "fail", "fail", "stop"])
    if way == "stop":
        number = rng.choice([signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
        return Disturbance(sent=Sent(rng.uniform(0, seconds), number, to_all=False))
    if way == "time" or not have_faults():
        return Disturbance(sent=Sent(rng.uniform(0, seconds)))
    number = 1 + int(calls * rng.random() ** rng.choice([1, 3]))
    if way == "call":
        kinds = rng.choice([CHANGING, sum(KINDS.values())])
        return Disturbance(Fault(SCOPE, kinds, number, rng.choice([KILL_BEFORE, KILL_AFTER])))
    kinds = rng.choice([*KINDS.values(), CHANGING, CHANGING])
    error = getattr(errno, rng.choice(ERRORS))
    if kinds.bit_count() == 1:
        number = 1 + int(calls / 6 * rng.random() ** 2)  # there are fewer of one kind
    return Disturbance(Fault(SCOPE, kinds, number, rng.choice([FAIL_ONCE, FAIL_ON]), error))


def interrupted_badly(ended: Ended, disturbance: Disturbance, ranks: int) -> str:
    """What is wrong with the end of a run that was disturbed."""
    if ended.code is None:
        return ended.wrong()
    if disturbance.fault is not None and disturbance.fault.error:
        return ended.wrong(0, 1, 2, ranks=ranks)
    if disturbance.sent is not None and disturbance.sent.number != signal.SIGKILL:
        number = disturbance.sent.number
        return ended.wrong(0, 128 + number, -number, 1, ranks=ranks)
    if ended.code not in (0, -signal.SIGKILL) and ranks == 1:
        return ended.wrong(0)  # the kill hit something else, which was no reason to fail
    return ""
