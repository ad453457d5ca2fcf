"""The asynchronous workflows, and one rank that dies: the whole job is gone in seconds, says why,
and leaves nothing in memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.jobs import LIGHT, go_on, paused, segments_of, train, under_mpi

TEAM = (*LIGHT, "--agent", "Teamed-v0", "--env", "Kept-v0", "--learner_procs", 2,
        "--process_per_env", 2)  # fmt: skip
ROLES = {
    "first learner": ("round", 0),
    "second learner": ("round", 1),
    "actor": ("step", 2),
    "member": ("step", 3),
}
LAST_WORDS = {
    "raise": "RuntimeError: the solver diverged",
    "exit": "SystemExit: the solver gave up",
}
# Of the ways that end in the same handler, each workflow meets one here and the other when slow.
CASES = [
    pytest.param("async", "kill"),
    pytest.param("rma", "kill"),
    pytest.param("async", "exit"),
    pytest.param("rma", "raise"),
    pytest.param("async", "raise", marks=pytest.mark.slow),
    pytest.param("rma", "exit", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("workflow", "fault"), CASES)
def test_the_job_ends_with_its_rank(tmp_path: Path, workflow: str, role: str, fault: str) -> None:
    """A rank is killed under plain mpiexec, where nothing cleans up behind MPI."""
    place, rank = ROLES[role]
    command = train(tmp_path / "run", *TEAM, "--workflow", workflow)
    command = under_mpi(6, command) if fault == "kill" else [*command, "--procs", "6"]
    at = 3 if place == "round" else 70
    job = paused(command, tmp_path, at=at, rank=rank, place=place, then=fault)
    segments = segments_of(job)
    blow = time.time()
    go_on(tmp_path)
    ended = job.wait()  # asserts that no process is left
    assert ended.code != 0
    assert ended.gone_at - blow < (30 if fault == "kill" else 10)
    assert segments
    assert not [path for path in segments if path.exists()]
    if fault != "kill":
        last = ended.err.rstrip().splitlines()[-1]
        told = f"exarl: rank {rank} (actor): environment 0: "  # of a failure without a traceback
        assert last.removeprefix(told) == LAST_WORDS[fault]
        assert f"rank {rank} (" in ended.err
