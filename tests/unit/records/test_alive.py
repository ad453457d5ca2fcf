"""Whether a process is alive: by the process table here, by its file elsewhere."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exarl.records import alive
from exarl.records.alive import SILENT_S, Heartbeat, born, is_alive, is_here, is_locked, own_card

ELSEWHERE = {"host": "elsewhere", "machine": "another", "pid": 1, "born": 1}


def touched(folder: Path, moment: float = 1_000_000.0) -> Path:
    path = folder / "lock.json"
    path.write_text("{}")
    os.utime(path, (moment, moment))
    return path


def test_this_process_is_here_and_alive(tmp_path: Path) -> None:
    card = own_card()
    assert is_here(card)
    assert not is_here(ELSEWHERE)
    assert card["pid"] == os.getpid()
    assert is_alive(card, tmp_path / "no file is needed", now=0.0)


def test_another_process_of_the_same_number_is_not_the_one(tmp_path: Path) -> None:
    card = {**own_card(), "born": 1}
    assert not is_alive(card, touched(tmp_path), now=1_000_000.0)
    for pid in (None, "x", 10**30):
        assert not is_alive({**own_card(), "pid": pid}, touched(tmp_path), now=1_000_000.0)


def test_without_a_machine_the_host_tells_who_is_here() -> None:
    card = {**own_card(), "machine": ""}
    assert is_here(card)
    assert not is_here({**card, "host": "elsewhere"})


def test_an_ended_process_is_not_born_and_neither_is_its_zombie() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    before = born(child.pid)
    assert before
    assert before >= (born(os.getpid()) or 0)
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet waited for
    assert born(child.pid) is None
    child.wait()
    assert born(child.pid) is None


@pytest.mark.parametrize(("silent", "expected"), [(0.0, True), (89.9, True), (90.0, False)])
def test_elsewhere_a_process_is_alive_while_it_touches_its_file(
    tmp_path: Path, silent: float, expected: bool
) -> None:
    assert SILENT_S == 90
    path = touched(tmp_path)
    assert is_alive(ELSEWHERE, path, now=1_000_000.0 + silent) is expected
    assert not is_alive(ELSEWHERE, tmp_path / "gone", now=1_000_000.0)


def test_elsewhere_a_process_that_holds_its_file_locked_is_alive(tmp_path: Path) -> None:
    path = touched(tmp_path)
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_alive(ELSEWHERE, path, now=1_000_000.0 + 1000)
    assert not is_alive(ELSEWHERE, path, now=1_000_000.0 + 1000)


def test_asking_for_a_lock_leaves_none_behind(tmp_path: Path) -> None:
    path = touched(tmp_path)
    with path.open() as one, path.open() as other:
        assert not is_locked(one.fileno())
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert is_locked(one.fileno())


@pytest.mark.parametrize(
    ("other", "expected"),
    [(["7", 0], False), (["7", 1], True), (["7", 2], True), (["8", 0], True), (None, True)],
)
def test_slurm_has_ended_the_job_that_it_queued_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: list[object] | None, expected: bool
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert own_card()["job"] == ["7", 1]
    card = {**ELSEWHERE, "job": other}
    assert is_alive(card, touched(tmp_path), now=1_000_000.0) is expected


def test_a_heart_touches_and_locks_its_file_while_it_beats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alive, "BEAT_S", 0.01)
    path = touched(tmp_path)
    heart = Heartbeat(path)
    assert heart.inode == path.stat().st_ino
    until = time.monotonic() + 10
    with path.open() as file:
        while path.stat().st_mtime == 1_000_000.0 or not is_locked(file.fileno()):
            assert time.monotonic() < until
            time.sleep(0.005)
        heart.close()
        heart.close()
        assert not is_locked(file.fileno())
