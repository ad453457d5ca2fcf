"""One process at a time writes to a run; what the dead left is taken over, and no other lock."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.runs import write_run

from exarl.errors import ConfigError, StorageError
from exarl.records import alive, lock
from exarl.records.alive import born, is_alive, own_card
from exarl.records.directory import RunDirectory
from exarl.records.lock import RunLock, check_part, read_holder, refuse_if_held


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return write_run(tmp_path / "run")


@pytest.fixture
def stopped() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands still."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    os.kill(process.pid, 19)
    yield process
    process.kill()
    process.wait()


def hold(run: RunDirectory, age: float = 0.0, **card: Any) -> None:
    """The lock of another process, last touched ``age`` seconds ago."""
    run.lock.write_text(json.dumps({**own_card(), "part": "theirs", **card}))
    at = time.time() - age
    os.utime(run.lock, (at, at))


AWAY = {"host": "node9", "machine": "another", "pid": 7}


def test_the_second_is_refused_with_who_holds_it(run: RunDirectory) -> None:
    with RunLock(run) as held:
        card = read_holder(run)
        assert card is not None and card["part"] == held.part
        words = f"in use by process {os.getpid()} on {card['host']}"
        with pytest.raises(ConfigError, match=words):
            RunLock(run).__enter__()
        with pytest.raises(ConfigError, match=words):
            refuse_if_held(run)
        assert read_holder(run) == card
    assert read_holder(run) is None
    with RunLock(run):
        pass
    assert not list(run.path.glob(".*"))


def test_a_stopped_process_is_not_dead(run: RunDirectory, stopped: subprocess.Popen[bytes]) -> None:
    hold(run, age=10_000, pid=stopped.pid, born=born(stopped.pid))
    with pytest.raises(ConfigError, match=f"process {stopped.pid}"):
        RunLock(run).__enter__()
    stopped.kill()
    stopped.wait()
    with RunLock(run) as held:
        assert check_part(run, held.part) is None


def test_a_number_that_is_used_again_is_another_process(run: RunDirectory) -> None:
    hold(run, born=1)  # our own number, at another time
    with RunLock(run):
        pass


def test_a_zombie_is_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert born(process.pid) is None
    process.wait()


def test_a_silent_holder_elsewhere_is_taken_over_after_a_while(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(alive, "SILENT_S", 1.0)
    monkeypatch.setattr(lock, "_POLL_S", 0.05)
    hold(run, age=0.5, **AWAY)
    began = time.monotonic()
    with RunLock(run):
        assert 0.2 < time.monotonic() - began < 5
    assert "process 7 on node9" in caplog.text


def test_a_holder_elsewhere_that_gives_a_sign_is_alive(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_POLL_S", 0.05)
    hold(run, age=5, **AWAY)
    later = threading.Timer(0.3, run.lock.touch)
    later.start()
    with pytest.raises(ConfigError, match="process 7 on node9"):
        RunLock(run).__enter__()
    later.join()


def test_the_kernel_s_lock_speaks_for_a_holder_that_cannot(run: RunDirectory) -> None:
    """A simulation that lets no thread run keeps the heartbeat from beating, for hours perhaps."""
    hold(run, age=10_000, **AWAY)
    beat = alive.Heartbeat(run.lock)
    try:
        card = read_holder(run)
        assert card is not None
        deadline = time.monotonic() + 5
        while not is_alive(card, run.lock, time.time()) and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(ConfigError, match="process 7 on node9"):
            RunLock(run).__enter__()
    finally:
        beat.close()
    assert not is_alive(card, run.lock, time.time())


def test_a_job_that_is_queued_again_need_not_wait(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(run, job=["77", 0], **AWAY)
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    with RunLock(run):
        pass


def test_waiting_for_a_living_holder(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, stopped: subprocess.Popen[bytes]
) -> None:
    monkeypatch.setenv(lock.LOCK_WAIT, "30")
    monkeypatch.setattr(lock, "_POLL_S", 0.05)
    hold(run, pid=stopped.pid, born=born(stopped.pid))
    later = threading.Timer(0.3, stopped.kill)
    later.start()
    with RunLock(run):
        assert stopped.poll() is not None
    monkeypatch.setenv(lock.LOCK_WAIT, "0.2")
    hold(run)
    with pytest.raises(ConfigError, match="in use"):
        RunLock(run).__enter__()


@pytest.mark.parametrize("links", [True, False])
def test_of_many_one_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    """Also when all of them find the same dead lock, and on a disk without links."""
    if not links:
        monkeypatch.setattr(os, "link", _no_links)
    run = write_run(tmp_path / "run")
    for _ in range(20):
        hold(run, born=1)
        got: list[RunLock] = []
        start = threading.Barrier(4)

        def take(got: list[RunLock] = got, start: threading.Barrier = start) -> None:
            start.wait()
            with contextlib.suppress(ConfigError):
                got.append(RunLock(run).__enter__())

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(got) == 1
        got[0].__exit__(None, None, None)
        assert not run.lock.exists()


def _no_links(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize("what", ["garbage", "deep", "fifo", "list"])
def test_an_old_lock_that_cannot_be_read_is_taken_over(run: RunDirectory, what: str) -> None:
    if what == "fifo":
        os.mkfifo(run.lock)
    else:
        run.lock.write_text({"garbage": "\0{", "deep": "[" * 100_000, "list": "[1]"}[what])
        os.utime(run.lock, (1, 1))
    with RunLock(run) as held:
        check_part(run, held.part)


def test_a_run_that_was_not_begun_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), RunLock(RunDirectory(tmp_path / "a/b/run")):
        raise ValueError("no")
    assert not list(tmp_path.iterdir())


def test_who_lost_a_run_notices(run: RunDirectory) -> None:
    with RunLock(run) as held:
        hold(run, **AWAY)
        with pytest.raises(StorageError, match="taken over by process 7 on node9"):
            check_part(run, held.part)
    assert run.lock.exists()  # it is theirs
    run.config.unlink()
    with pytest.raises(StorageError, match="gone"):
        check_part(run, held.part)


def test_what_the_killed_had_begun_to_write_is_swept(run: RunDirectory) -> None:
    for path in (run.path / ".config.json.7.tmp", run.logs / ".trace_0000.json.7.tmp"):
        path.write_text("half")
    (run.checkpoints / ".000000000032.tmp").mkdir()
    (run.checkpoints / ".000000000032.tmp/agent.safetensors").write_text("half")
    (run.path / "notes.tmp").write_text("the user's")
    with RunLock(run):
        assert [path.name for path in run.path.rglob("*.tmp")] == ["notes.tmp"]


def test_the_heartbeat_ends_with_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code = "import sys; from pathlib import Path; from exarl.records.alive import Heartbeat"
    code += "; Heartbeat(Path(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(tmp_path / "file")]
    subprocess.run(command, timeout=20, check=True)
