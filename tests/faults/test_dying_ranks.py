"""One rank dies, in whatever way and role: the whole job is gone in seconds, and says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.jobs import LIGHT, Ended, Job, go_on, paused, run, segments_of, train, under_mpi

GROUP = (*LIGHT, "--env", "Kept-v0", "--process_per_env", 2)
ROLES = {"learner": ("train", 0), "actor": ("step", 1), "member": ("step", 2)}
LIMIT = {"raise": 10, "exit": 10, "kill": 30}


def strike(folder: Path, fault: str, role: str, *, procs: bool = True, **order: Any) -> Ended:
    """A run of learner, actor and member in which one of them dies in the middle."""
    place, rank = ROLES[role]
    at = 3 if place == "train" else 70
    subject = {"folder": str(folder), "fault": fault, "place": place, "rank": rank, "at": at}
    command = train(folder / "run", *GROUP)
    command = [*command, "--procs", "3"] if procs else under_mpi(3, command)
    return Job(command, subject={**subject, **order}).wait()


def seconds_after_the_blow(folder: Path, ended: Ended) -> float:
    return ended.gone_at - (folder / "struck").stat().st_mtime


@pytest.fixture(scope="module", params=ROLES)
def raised(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, Ended]:
    """A job in which the rank of one role raised."""
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, folder, strike(folder, "raise", request.param)


def test_the_job_ends_when_a_rank_raises(raised: tuple[str, Path, Ended]) -> None:
    role, folder, ended = raised
    assert ended.code != 0
    assert seconds_after_the_blow(folder, ended) < LIMIT["raise"]
    lines = ended.err.rstrip().splitlines()
    assert lines[-1] == "RuntimeError: the solver diverged"
    assert any(line.startswith(f"rank {ROLES[role][1]} ({role}) failed") for line in lines)


def test_the_traceback_is_in_the_rank_s_log(raised: tuple[str, Path, Ended]) -> None:
    role, folder, _ = raised
    text = (folder / "run" / "logs" / f"rank_{ROLES[role][1]:04d}.log").read_text()
    assert "Traceback (most recent call last)" in text
    assert text.rstrip().endswith("RuntimeError: the solver diverged")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("fault", ["exit", "kill"])
def test_the_job_ends_with_its_rank(tmp_path: Path, fault: str, role: str) -> None:
    ended = strike(tmp_path, fault, role)
    assert ended.code != 0
    assert seconds_after_the_blow(tmp_path, ended) < LIMIT[fault]


def test_the_traceback_of_a_single_process_is_in_its_log(tmp_path: Path) -> None:
    order = {"folder": str(tmp_path), "fault": "raise", "at": 70}
    ended = run(train(tmp_path / "run", *LIGHT, "--env", "Kept-v0"), subject=order)
    assert ended.code == 1
    assert ended.err.rstrip().endswith("RuntimeError: the solver diverged")
    text = (tmp_path / "run" / "logs" / "rank_0000.log").read_text()
    assert text.rstrip().endswith("RuntimeError: the solver diverged")


def test_under_plain_mpiexec_too(tmp_path: Path) -> None:
    ended = strike(tmp_path, "raise", "actor", procs=False)
    assert ended.code != 0
    assert seconds_after_the_blow(tmp_path, ended) < LIMIT["raise"]
    assert "RuntimeError: the solver diverged" in ended.err


def test_an_environment_that_closes_together_does_not_hang_the_job(tmp_path: Path) -> None:
    """The actor fails before a collective step; its close() must not wait for the others."""
    subject = {"folder": str(tmp_path), "fault": "raise", "rank": 1, "at": 70, "slow_close": True}
    job = Job(train(tmp_path / "run", *GROUP, "--procs", 3), subject=subject)
    ended = job.wait(patience=40)
    assert ended.code != 0
    assert seconds_after_the_blow(tmp_path, ended) < LIMIT["raise"]


@pytest.mark.parametrize("rank", [1, 2])
def test_an_environment_that_cannot_be_made_ends_the_job(tmp_path: Path, rank: int) -> None:
    order = {"folder": str(tmp_path), "fault": "raise", "place": "make", "rank": rank, "at": 1}
    ended = run(train(tmp_path / "run", *GROUP, "--procs", 3), subject=order)
    assert ended.code != 0
    assert seconds_after_the_blow(tmp_path, ended) < LIMIT["raise"]
    assert ended.err.rstrip().endswith("RuntimeError: the solver diverged")


@pytest.mark.parametrize("end", ["", "raise", "kill"])
def test_no_job_leaves_shared_memory(tmp_path: Path, end: str) -> None:
    """Whether it ends well, by an error or by a signal."""
    command = train(tmp_path / "run", *GROUP, "--procs", 3, "--total_steps", 200)
    job = paused(command, tmp_path, at=70, rank=1, then=end)
    segments = segments_of(job)
    go_on(tmp_path)
    assert bool(job.wait().code) == bool(end)
    assert not [segment for segment in segments if segment.exists()]


@pytest.mark.slow
def test_groups_start_without_a_word_of_warning(tmp_path: Path) -> None:
    """A communicator among an environment's arguments is nothing to warn of."""
    ended = run(train(tmp_path / "run", *GROUP, "--procs", 3, "--total_steps", 100)).ok()
    assert "warn" not in ended.err.lower()
