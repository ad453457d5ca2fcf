"""Ranks that wait cost next to nothing: the cores belong to the simulations."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from support.jobs import LIGHT, Job, paused, train

WAITS: dict[str, dict[str, Any]] = {
    "first steps": {"rank": 1, "at": 1, "delay": 60},
    "long steps": {"rank": 1, "at": 20, "delay": 60, "delay_from": 20},
    "a busy learner": {"place": "train", "at": 3},
}
TICKS = os.sysconf("SC_CLK_TCK")


def cores_used(job: Job, ranks: int, rest: float, span: float) -> list[float]:
    """After ``rest`` seconds, the part of a core that each rank uses in the next ``span``."""
    time.sleep(rest)
    pids = [job.rank_pid(rank) for rank in range(ranks)]
    before = [seconds_used(pid) for pid in pids]
    time.sleep(span)
    after = [seconds_used(pid) for pid in pids]
    return [(now - then) / span for now, then in zip(after, before, strict=True)]


def seconds_used(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def idle_job(folder: Path, workflow: str, actors: int, waits_for: str) -> Job:
    words = (*LIGHT, "--workflow", workflow, "--procs", actors + 1, "--block_steps", 2)
    command = train(folder / "run", *words, "--env", "Replayed-v0")
    return paused(command, folder, **WAITS[waits_for])


def test_a_learner_does_not_spin_while_actors_are_in_their_first_step(tmp_path: Path) -> None:
    job = idle_job(tmp_path, "rma", 2, "first steps")
    try:
        used = cores_used(job, 3, rest=0.5, span=1.5)
    finally:
        job.kill()
        job.process.wait()
    assert max(used) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("workflow", ["async", "rma", "seed"])
@pytest.mark.parametrize("waits_for", WAITS)
def test_sixteen_idle_actors_leave_the_cores_alone(
    tmp_path: Path, workflow: str, waits_for: str
) -> None:
    """All of them together, and the learner no more."""
    job = idle_job(tmp_path, workflow, 16, waits_for)
    try:
        learner, *actors = cores_used(job, 17, rest=8, span=6)
    finally:
        job.kill()
        job.process.wait()
    print(f"{workflow}, {waits_for}: actors {sum(actors):.2%}, learner {learner:.2%}")
    # Those that sleep in a step do nothing at all; those that wait for the learner look for it.
    assert sum(actors) < (0.08 if waits_for == "a busy learner" else 0.05)
    assert learner < 0.05
