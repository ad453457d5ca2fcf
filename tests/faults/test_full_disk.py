"""A disk that fills up ends the run with a word about it, and the last good checkpoint stays good."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers_jobs import (
    DEEP,
    LIGHT,
    assert_same,
    everything_of,
    go_on,
    newest,
    paused,
    resume,
    run,
    train,
)

EASY = (*LIGHT, "--env", "Replayed-v0", "--checkpoint_interval", 0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Four megabytes of storage of its own, where we may mount it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Use up all that is left."""
    junk = disk / "junk"
    with junk.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return junk


@pytest.mark.parametrize(("procs", "whole"), [(1, "light"), (3, "light3")])
def test_no_space_left(
    small_disk: Path, tmp_path: Path, procs: int, whole: str, request: pytest.FixtureRequest
) -> None:
    expected = request.getfixturevalue(whole)
    path = small_disk / "run"
    command = train(path, *EASY, "--procs", procs)
    job = paused(command, tmp_path / "pause", at=400, rank=procs // 2)
    good = newest(path).numbers["counters"]["steps"]
    junk = fill(small_disk)
    go_on(tmp_path / "pause")
    ended = job.wait()
    assert ended.code not in (0, 2)
    last = ended.err.rstrip().splitlines()[-1]
    assert "No space left on device" in last
    assert str(path) in last  # what could not be written
    assert newest(path).numbers["counters"]["steps"] >= good > 0
    junk.unlink()
    run(resume(path)).ok()
    assert_same(everything_of(path), everything_of(expected))


def test_files_may_not_grow(tmp_path: Path, deep: Path) -> None:
    """A quota on the size of a file strikes when the replay has grown to it."""
    path = tmp_path / "run"
    command = train(path, *DEEP, "--checkpoint_interval", 0)
    ended = run(["bash", "-c", 'ulimit -f 48; exec "$@"', "bash", *command])
    assert ended.code not in (0, 2)
    last = ended.err.rstrip().splitlines()[-1]
    assert "File too large" in last
    assert str(path) in last
    steps = newest(path).numbers["counters"]["steps"]
    assert 32 < steps < 1500
    run(resume(path)).ok()
    assert_same(everything_of(path), everything_of(deep))
