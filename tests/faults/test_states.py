"""The files of a run say how it stands, whatever befell it, and one process at a time writes them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from support.jobs import (
    EXARL,
    LIGHT,
    assert_same,
    everything_of,
    go_on,
    paused,
    resume,
    run,
    summary_of,
    train,
)

EASY = (*LIGHT, "--env", "Replayed-v0", "--checkpoint_interval", 0)


def listed(folder: Path) -> dict[str, Any]:
    """The only run in ``folder``, as ``exarl runs`` has it."""
    (found,) = json.loads(run([*EXARL, "runs", folder, "--json"]).ok().out)
    return dict(found)


def holder_of(path: Path) -> dict[str, Any]:
    return dict(json.loads((path / "lock.json").read_text()))


def times_of(path: Path) -> dict[str, int]:
    """When each file of a run was written; the lock, which is touched all the time, left out."""
    return {file.name: file.stat().st_mtime_ns for file in path.iterdir() if file.stem != "lock"}


def test_a_run_has_one_writer(tmp_path: Path, light: Path) -> None:
    path = tmp_path / "runs/run"
    job = paused(train(path, *EASY), tmp_path, at=790)
    assert listed(path.parent)["state"] == "running"
    held = holder_of(path)
    assert held["pid"] == job.process.pid
    before = times_of(path)
    for command in (resume(path), train(path, *EASY), resume(path, "--procs", 2)):
        second = run(command)
        assert second.code == 2
        assert second.err.count("\n") == 1
        assert f"in use by process {held['pid']} on {held['host']}" in second.err
    os.kill(job.process.pid, signal.SIGSTOP)  # stopped is not dead
    assert run(resume(path)).code == 2
    os.kill(job.process.pid, signal.SIGCONT)
    assert times_of(path) == before
    go_on(tmp_path)
    job.wait()
    assert listed(path.parent)["state"] == "finished"
    assert not (path / "lock.json").exists()
    assert_same(everything_of(path), everything_of(light))


@pytest.mark.parametrize("procs", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_killed_run_is_seen_and_taken_over(tmp_path: Path, procs: int) -> None:
    path = tmp_path / "runs/run"
    job = paused(train(path, *EASY, "--procs", procs), tmp_path, at=400, rank=procs // 2)
    (path / ".config.json.7.tmp").write_text("half")
    job.kill()
    assert listed(path.parent)["state"] == "killed"
    watched = run([*EXARL, "watch", path])
    assert watched.code == 1
    assert "killed" in watched.out.splitlines()[-2]
    run(resume(path)).ok()
    found = listed(path.parent)
    assert (found["state"], found["steps"]) == ("finished", summary_of(path)["timesteps_total"])
    assert not list(path.rglob("*.tmp"))


@pytest.mark.parametrize(
    "workflow",
    ["async", *(pytest.param(w, marks=pytest.mark.slow) for w in ("sync", "rma", "seed"))],
)
def test_a_rank_that_fails_leaves_the_cause_in_the_summary(tmp_path: Path, workflow: str) -> None:
    path = tmp_path / "runs/run"
    order = {"folder": str(tmp_path), "fault": "raise", "rank": 2, "at": 100}
    ended = run(train(path, *EASY, "--workflow", workflow, "--procs", 3), subject=order)
    assert ended.code == 1
    summary = summary_of(path)
    assert (summary["state"], summary["reason"]) == ("failed", "failed")
    assert summary["error"] == "RuntimeError: the solver diverged"
    assert (summary["failure"]["rank"], summary["failure"]["kind"]) == (2, "raise")
    assert listed(path.parent)["cause"] == summary["error"]
    assert run([*EXARL, "watch", path]).code == 1


def test_a_failure_is_told_by_every_command(tmp_path: Path, light: Path) -> None:
    path = tmp_path / "run"
    order = {"folder": str(tmp_path), "fault": "raise", "at": 400}
    assert run(train(path, *EASY), subject=order).code == 1
    assert summary_of(path)["timesteps_total"] == 384
    assert summary_of(path)["failure"]["environment"] == 0
    shown = run([*EXARL, "runs", tmp_path]).ok().out.splitlines()
    assert shown[1].split()[:2] == ["run", "failed"]
    assert shown[1].endswith("RuntimeError: the solver diverged")
    assert "the solver diverged" in run([*EXARL, "watch", path, "--once"]).ok().out
    run([*EXARL, "report", path]).ok()
    page = (path / "report.html").read_text()
    assert "No environment failed" not in page
    assert "failed: RuntimeError: the solver diverged" in page
    run(resume(path)).ok()
    assert_same(everything_of(path), everything_of(light))


def test_a_lost_rank_is_told_by_the_launcher(tmp_path: Path) -> None:
    path = tmp_path / "run"
    order = {"folder": str(tmp_path), "fault": "kill", "rank": 1, "at": 400}
    assert run(train(path, *EASY, "--procs", 3), subject=order).code != 0
    summary = summary_of(path)
    assert (summary["state"], summary["failure"]["kind"]) == ("failed", None)
    assert "a rank was lost" in summary["error"]


def test_an_environment_may_change_the_folder(tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    order = {"folder": str(tmp_path), "chdir": str(away)}
    words = (*EASY, "--total_steps", 400, "--profile", "trace")
    run(train(Path("run"), *words), cwd=tmp_path, subject=order).ok()
    run(resume(Path("run"), "--total_steps", 800), cwd=tmp_path, subject=order).ok()
    assert not list(away.iterdir())
    path = tmp_path / "run"
    assert summary_of(path)["timesteps_total"] >= 800
    assert (path / "trace.json").is_file() and (path / "learning_curve.png").is_file()


def test_a_run_directory_that_is_deleted_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "run"
    job = paused(train(path, *EASY), tmp_path, at=790)
    shutil.rmtree(path)
    go_on(tmp_path)
    ended = job.wait()
    assert ended.code == 1
    assert ended.err.splitlines()[-1].startswith(f"exarl: {path} is gone")
    assert "Traceback" not in ended.err
    assert not path.exists()


def test_a_terminal_that_is_closed_stops_a_run_in_order(tmp_path: Path) -> None:
    path = tmp_path / "run"
    job = paused(train(path, *EASY), tmp_path, at=790)
    job.send(signal.SIGHUP)
    go_on(tmp_path)
    assert job.wait().code == 128 + signal.SIGHUP
    assert (summary_of(path)["state"], summary_of(path)["reason"]) == ("stopped", "SIGHUP")


def test_who_interrupts_at_once_has_a_summary_too(tmp_path: Path) -> None:
    path = tmp_path / "run"
    job = paused(train(path, *EASY), tmp_path, at=790)
    job.send(signal.SIGINT)
    time.sleep(0.3)
    job.send(signal.SIGINT)
    assert job.wait().code == 130
    summary = summary_of(path)
    assert (summary["state"], summary["reason"]) == ("stopped", "SIGINT")
    assert not (path / "lock.json").exists()
