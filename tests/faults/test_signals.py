"""Told to stop: a checkpoint, a summary, exit code 128 + n; resumed, the run ends as if undisturbed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.jobs import (
    DEEP,
    LIGHT,
    Ended,
    Job,
    assert_same,
    everything_of,
    go_on,
    newest,
    paused,
    resume,
    run,
    run_all,
    summary_of,
    train,
    wait_until,
)

EASY = (*LIGHT, "--env", "Replayed-v0")


def interrupt(folder: Path, words: tuple[object, ...], procs: int, signum: int) -> Ended:
    """Train, stop at the 400th step of the first environment, and let the ranks end."""
    name = f"of{procs}"
    command = train(folder / name, *words, "--procs", procs)
    job = paused(command, folder / f"pause{procs}", at=400, rank=min(procs - 1, 1))
    job.send(signum)
    time.sleep(0.5 if procs > 1 else 0)  # on its way through mpiexec to the learner
    go_on(folder / f"pause{procs}")
    return job.wait()


@pytest.fixture(
    params=[
        pytest.param((signal.SIGTERM, DEEP), id="SIGTERM"),
        pytest.param((signal.SIGINT, EASY), id="SIGINT", marks=pytest.mark.slow),
        # Noted by the same handler; tests/unit/records/test_signals.py has it too.
        pytest.param((signal.SIGUSR1, EASY), id="SIGUSR1", marks=pytest.mark.slow),
    ],
)
def stopped(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, int, bool]]:
    signum, words = request.param
    for procs in (1, 3):
        ended = interrupt(tmp_path, words, procs, signum)
        assert ended.code == 128 + signum, ended.err
        assert "exarl resume" in ended.err.rstrip().splitlines()[-1]
    yield tmp_path, signum, words is DEEP


@pytest.mark.slow
def test_a_stop_signal_is_obeyed_and_forgiven(
    stopped: tuple[Path, int, bool], request: pytest.FixtureRequest
) -> None:
    folder, signum, is_deep = stopped
    for procs in (1, 3):
        path = folder / f"of{procs}"
        assert summary_of(path)["reason"] == signal.Signals(signum).name
        steps = newest(path).numbers["counters"]["steps"]
        assert steps == summary_of(path)["timesteps_total"] == (384 if procs == 1 else 768)
    for ended in run_all({"1": resume(folder / "of1"), "3": resume(folder / "of3")}).values():
        ended.ok()
        assert "continuing at step" in ended.err
    for procs, name in ((1, "deep" if is_deep else "light"), (3, "deep3" if is_deep else "light3")):
        whole = request.getfixturevalue(name)
        assert_same(everything_of(folder / f"of{procs}"), everything_of(whole))
        assert summary_of(folder / f"of{procs}")["reason"] == "total_steps"


@pytest.mark.slow
@pytest.mark.parametrize("procs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_time_limit_is_obeyed_between_two_steps(
    tmp_path: Path, procs: int, request: pytest.FixtureRequest
) -> None:
    """Blocks may be long: this one would take half a minute."""
    path = tmp_path / "run"
    command = train(path, *EASY, "--wall_time", 1.5, "--procs", procs)
    Job(command, subject={"folder": str(tmp_path), "delay": 1.0}).wait(patience=60).ok()
    summary = summary_of(path)
    assert (summary["reason"], summary["timesteps_total"]) == ("wall_time", 0)
    assert summary["wall_s"] < 8
    if procs == 1:
        run(resume(path, "--wall_time", 1000)).ok()
        assert_same(everything_of(path), everything_of(request.getfixturevalue("light")))


def test_a_signal_while_starting_is_not_lost(tmp_path: Path, light3: Path) -> None:
    """SIGTERM while the ranks make their environments: the job ends, and can be had again."""
    command = train(tmp_path / "run", *EASY, "--procs", 3)
    job = paused(command, tmp_path / "pause", at=1, rank=1, place="make")
    job.send(signal.SIGTERM)
    time.sleep(0.5)
    go_on(tmp_path / "pause")
    assert job.wait().code == 128 + signal.SIGTERM
    run(command).ok()
    assert_same(everything_of(tmp_path / "run"), everything_of(light3))


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    """An environment that hangs cannot keep a user from leaving with Ctrl-C twice."""
    job = paused(train(tmp_path / "run", *EASY), tmp_path / "pause", at=50)
    job.send(signal.SIGINT)
    time.sleep(0.2)
    job.send(signal.SIGINT)
    ended = job.wait(patience=20)
    assert ended.code == 128 + signal.SIGINT


def test_a_second_signal_ends_all_ranks_at_once(tmp_path: Path) -> None:
    job = paused(train(tmp_path / "run", *EASY, "--procs", 3), tmp_path / "pause", at=50, rank=1)
    for _ in range(2):
        job.send(signal.SIGINT)
        time.sleep(0.3)
    assert job.wait(patience=20).code == 128 + signal.SIGINT


def test_killing_mpiexec_leaves_no_rank_behind(tmp_path: Path) -> None:
    job: Job = paused(
        train(tmp_path / "run", *EASY, "--procs", 3), tmp_path / "pause", at=50, rank=1
    )
    launcher = wait_until(
        lambda: next((pid for pid in job.pids() if "mpiexec" in command_of(pid)[0]), None)
    )
    assert job.rank_pid(2)
    os.kill(launcher, signal.SIGKILL)
    assert job.wait(patience=30).code != 0


def command_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return [""]
