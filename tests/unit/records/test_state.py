"""How a run stands is in its files: running, finished, stopped, failed, killed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.runs import make_row, make_summary, write_run

from exarl.errors import EnvironmentFailure, StorageError
from exarl.records import ending
from exarl.records.alive import own_card
from exarl.records.directory import RunDirectory
from exarl.records.ending import describe, write_failure, write_summary
from exarl.records.follow import look
from exarl.records.lock import RunLock
from exarl.records.state import state_of


def state(run: RunDirectory) -> tuple[str, str]:
    found = look(run).state
    return found.name, found.cause


def test_from_the_beginning_to_each_end(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", ended=False)
    summary = make_summary(make_row(40, 98.0))
    assert state(run)[0] == "unknown"
    for reason, name in (("total_steps", "finished"), ("SIGTERM", "stopped")):
        with RunLock(run):
            assert state(run) == ("running", state_of(run).cause)
            assert f"process {os.getpid()} on " in state(run)[1]
            write_summary(run, {**summary, "reason": reason})
            assert state(run) == (name, reason)
        assert state(run) == (name, reason)
    with RunLock(run):
        write_failure(run, ZeroDivisionError("by nothing"), summary, rank=3)
    assert state(run) == ("failed", "ZeroDivisionError: by nothing")
    assert json.loads(run.summary.read_text())["failure"]["rank"] == 3


def test_the_killed_are_told_from_the_running_and_the_finished(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert state(run) == ("finished", "total_steps")
    run.lock.write_text(json.dumps({**own_card(), "born": 1, "part": "theirs"}))
    assert state(run)[0] == "killed"  # in a part after the one that was finished
    assert not look(run).summary


def test_the_first_error_counts(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rows=5)  # with the summary of a part before
    with RunLock(run) as held:
        write_failure(run, RuntimeError("first"), part=held.part, rank=2)
        write_failure(run, RuntimeError("second"), part=held.part)
    assert state(run) == ("failed", "RuntimeError: first")
    summary = json.loads(run.summary.read_text())
    assert (summary["timesteps_total"], summary["last_reward_mean"]) == (
        125,
        make_row(5, summary["last_reward_mean"])["episode_reward_mean"],
    )
    with RunLock(run):
        write_failure(run, RuntimeError("third"))
    assert state(run) == ("failed", "RuntimeError: third")


def test_an_error_after_the_end_is_told_with_what_was_reached(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    with RunLock(run):
        write_summary(run, make_summary(make_row(40, 98.0)))
        write_failure(run, OSError(28, "No space left on device"))
    summary = json.loads(run.summary.read_text())
    assert (summary["state"], summary["timesteps_total"]) == ("failed", 1000)
    assert "No space left" in summary["error"]


def test_a_run_of_others_is_left_alone(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    before = run.summary.read_bytes()
    with RunLock(run):
        write_failure(run, StorageError("taken over"), part="mine, of before")
    assert run.summary.read_bytes() == before


def test_a_full_disk_still_tells_of_the_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    run = write_run(tmp_path / "run")
    monkeypatch.setattr(ending, "write_json", full)
    with RunLock(run):
        write_failure(run, StorageError("cannot write: No space left on device"))
    assert state(run) == ("failed", "cannot write: No space left on device")
    with RunLock(run):  # this process is alive, and yet the run is free
        assert state(run)[0] == "running"


def test_a_second_ctrl_c_is_a_stop_and_no_failure(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    with RunLock(run):
        write_failure(run, KeyboardInterrupt(), signum=2)
    assert state(run) == ("stopped", "SIGINT")
    assert "interrupted" in json.loads(run.summary.read_text())["error"]


def test_an_environment_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    with RunLock(run):
        write_failure(run, EnvironmentFailure("environment 4 hangs", "timeout"))
    failure = json.loads(run.summary.read_text())["failure"]
    assert (failure["kind"], state(run)[1]) == ("timeout", "environment 4 hangs")


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("two\nlines"), "ValueError: two lines"),
        (SystemExit(0), "SystemExit: 0"),
        (Mute(), "Mute: <exception str() failed>"),
        (StorageError("a disk"), "a disk"),
        ("Traceback (most recent call last):\n  x\nKeyError: 3\n", "KeyError: 3"),
    ],
)
def test_an_error_in_one_line(error: BaseException | str, text: str) -> None:
    assert describe(error).endswith(text)
    assert len(describe(ValueError("x" * 10_000))) == 500
