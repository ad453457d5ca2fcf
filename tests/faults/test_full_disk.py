"""A disk that fills up ends the run with a word about it, and the last good checkpoint stays good."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.jobs import (
    DEEP,
    LIGHT,
    assert_same,
    everything_of,
    fill,
    go_on,
    newest,
    paused,
    resume,
    run,
    train,
)

EASY = (*LIGHT, "--env", "Replayed-v0", "--checkpoint_interval", 0)


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


@pytest.mark.slow
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
