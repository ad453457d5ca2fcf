"""A run directory with odd, damaged or dangerous files: one line, the documented exit code, no hang."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.jobs import (
    EXARL,
    LIGHT,
    assert_same,
    csv_rows,
    everything_of,
    fill,
    resume,
    run,
    sum_again,
    summary_of,
    train,
)

from exarl.records.checkpoint import list_checkpoints

EASY = (*LIGHT, "--env", "Replayed-v0", "--checkpoint_interval", 0)


def newest(path: Path) -> Path:
    return list_checkpoints(path / "checkpoints")[0]


def fifo(file: Path) -> None:
    file.unlink(missing_ok=True)
    os.mkfifo(file)


def device(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def folder(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.mkdir()


def fifos(path: Path) -> None:
    first, second, _ = list_checkpoints(path / "checkpoints")
    fifo(first / "agent.safetensors")
    fifo(second / "state.json")
    fifo(path / "summary.json")
    (path / "progress.csv").write_bytes(bytes(range(256)) * 400)


def oddities(path: Path) -> None:
    first, second, _ = list_checkpoints(path / "checkpoints")
    (first / "state.json").write_text("[" * 200_000)
    device(second / "envs.safetensors")
    for name in ("²", "٣", "1\n2", "-5"):
        (path / "checkpoints" / name).mkdir()
    (path / "progress.csv").write_text('"' + "x" * 300_000)


def hollow(path: Path) -> None:
    """A newest checkpoint whose checksums are right, and which lacks what a run needs."""
    (newest(path) / "state.json").write_text(json.dumps({"format": 1}))
    sum_again(newest(path))


REFUSED: dict[str, tuple[int, str, Callable[[Path], object]]] = {
    "fifo for the table": (1, "progress.csv", lambda path: fifo(path / "progress.csv")),
    "device for rows": (1, "result.jsonl", lambda path: device(path / "result.jsonl")),
    "fifo for the log": (1, "logs/rank_0000.log", lambda path: fifo(path / "logs/rank_0000.log")),
    "fifo for the manifest": (2, "manifest.json", lambda path: fifo(path / "manifest.json")),
    "deep config": (2, "config.json", lambda path: (path / "config.json").write_text("[" * 99_999)),
    "hollow checkpoint": (1, "checkpoints", hollow),
    "folder for the lock": (2, "", lambda path: folder(path / "lock.json")),
}


@pytest.mark.parametrize("change", [fifos, oddities])
def test_what_a_run_gets_over(
    tmp_path: Path, killed: Path, light: Path, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "run"
    shutil.copytree(killed, path)
    change(path)
    ended = run(resume(path)).ok()
    assert "Traceback" not in ended.err
    assert_same(everything_of(path), everything_of(light))
    assert csv_rows(path) == csv_rows(light)


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_in_one_line(tmp_path: Path, killed: Path, what: str) -> None:
    path = tmp_path / "run"
    shutil.copytree(killed, path)
    code, name, change = REFUSED[what]
    change(path)
    ended = run(resume(path))
    assert ended.code == code
    assert "Traceback" not in ended.err
    last = ended.err.splitlines()[-1]
    assert last.startswith("exarl: ")
    assert str(path / name) in last


@pytest.fixture
def disk(small_disk: Path, killed: Path) -> Path:
    """A small disk with a run on it."""
    shutil.copytree(killed, small_disk / "run")
    return small_disk


@pytest.mark.parametrize("left", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_resuming_on_a_full_disk(disk: Path, light: Path, left: int) -> None:
    path = disk / "run"
    junk = fill(disk, left)
    ended = run(resume(path))
    assert ended.code == 1
    assert "Traceback" not in ended.err
    assert "No space left on device" in ended.err.splitlines()[-1]
    state = run([*EXARL, "runs", disk]).ok().out.splitlines()[1]
    assert state.split()[1] == ("failed" if left else "killed")
    junk.unlink()
    run(resume(path)).ok()
    assert_same(everything_of(path), everything_of(light))


def test_resuming_on_a_read_only_disk(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    ended = run(resume(disk / "run"))
    assert ended.code == 2
    assert ended.err == f"exarl: cannot write to {disk / 'run'}: Read-only file system\n"


@pytest.mark.slow
def test_the_configuration_is_written_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "run"
    words = (*EASY, "--total_steps", 200, "--log_level", "[3,3]")
    run(train(path, *words)).ok()
    before = (path / "config.json").stat()
    (path / "summary.json").unlink()
    run(train(path, *words)).ok()
    assert (path / "config.json").stat().st_mtime_ns == before.st_mtime_ns
    run(resume(path, "--total_steps", 300)).ok()
    assert (path / "config.json").stat().st_mtime_ns > before.st_mtime_ns
    assert summary_of(path)["timesteps_total"] >= 300
