"""Jobs under supervision: a watchdog, restarts, and the process that started the ranks."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from support.jobs import LIGHT, Job, go_on, paused, run, summary_of, train, wait_until

DUMP = "Timeout ("  # how faulthandler begins
EASY = (*LIGHT, "--env", "Replayed-v0", "--procs", 3, "--checkpoint_interval", 0)
GROUP = (*LIGHT, "--env", "Kept-v0", "--procs", 3, "--process_per_env", 2)


def log_of(folder: Path, rank: int) -> str:
    return (folder / "run" / "logs" / f"rank_{rank:04d}.log").read_text()


def test_a_rank_that_hangs_writes_its_stack_to_its_log(tmp_path: Path) -> None:
    command = train(tmp_path / "run", *GROUP, "--total_steps", 100, "--watchdog", 0.5)
    job = paused(command, tmp_path, at=40, rank=1)
    try:
        wait_until(lambda: "in step" in log_of(tmp_path, 1), patience=30)
    finally:
        go_on(tmp_path)
    job.wait().ok()
    text = log_of(tmp_path, 1)
    assert DUMP in text
    assert "subjects.py" in text


@pytest.mark.slow
def test_the_watchdog_is_silent_while_all_moves(tmp_path: Path) -> None:
    """Three seconds of small steps, on a learner, an actor and a member of its group."""
    words = (*GROUP, "--total_steps", 96, "--block_steps", 8, "--watchdog", 1)
    run(train(tmp_path / "run", *words), subject={"delay": 0.03}).ok()
    assert summary_of(tmp_path / "run")["wall_s"] > 2
    dumps = [dump for rank in range(3) for dump in log_of(tmp_path, rank).split(DUMP)[1:]]
    # When training is over, loading Matplotlib may take longer than this impatient watchdog waits.
    assert [dump for dump in dumps if "in draw_curve" not in dump] == []


def killed_at_a_step(folder: Path, restarts: int, **order: object) -> tuple[int, str]:
    subject = {"folder": str(folder), "fault": "kill", "rank": 1, "at": 400, **order}
    words = (*EASY, "--max_restarts", restarts)
    ended = run(train(folder / "run", *words), subject=subject)
    return ended.code, ended.err


def test_a_lost_job_is_resumed_and_finishes(tmp_path: Path) -> None:
    code, err = killed_at_a_step(tmp_path, restarts=2, once=True)
    assert code == 0, err
    assert err.count("the job was lost") == 1
    assert "restart 1 of 2" in err
    assert "continuing at step" in err
    assert summary_of(tmp_path / "run")["reason"] == "total_steps"
    assert summary_of(tmp_path / "run")["timesteps_total"] == 1536


def test_a_job_that_is_lost_again_and_again_is_given_up(tmp_path: Path) -> None:
    code, err = killed_at_a_step(tmp_path, restarts=2, at=20)
    assert code not in (0, 2)
    assert [f"restart {n} of 2" in err for n in (1, 2)] == [True, True]
    assert err.count("the job was lost") == 2
    summary = summary_of(tmp_path / "run")
    assert summary["state"] == "failed" and "a rank was lost" in summary["error"]


def test_a_stop_signal_or_bad_input_is_no_reason_to_restart(tmp_path: Path) -> None:
    command = train(tmp_path / "run", *EASY, "--max_restarts", 3)
    job = paused(command, tmp_path, at=100, rank=1)
    job.send(signal.SIGTERM)
    time.sleep(0.5)  # on its way through mpiexec to the learner
    go_on(tmp_path)
    ended = job.wait()
    assert ended.code == 128 + signal.SIGTERM
    assert "restart" not in ended.err
    ended = run([*command, "--gamma", "0.5"])  # another run in this place: only the ranks find out
    assert ended.code == 2
    assert "restart" not in ended.err


def test_the_job_is_told_to_stop_when_its_starter_is_killed(tmp_path: Path) -> None:
    job: Job = paused(train(tmp_path / "run", *EASY), tmp_path, at=100, rank=1)
    job.send(signal.SIGKILL)
    time.sleep(0.5)
    go_on(tmp_path)
    assert job.wait().code == -signal.SIGKILL  # and asserts that no process is left
    assert summary_of(tmp_path / "run")["reason"] == "SIGTERM"
