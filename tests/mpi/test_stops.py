"""A job that is told to stop, under whichever MPI library: a checkpoint, a summary, the exact rest."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from support.jobs import (
    LIGHT,
    Job,
    assert_same,
    everything_of,
    go_on,
    newest,
    paused,
    reference,
    resume,
    run,
    summary_of,
    train,
    wait_until,
)

WORDS = (*LIGHT, "--env", "Replayed-v0", "--procs", 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "signum", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_sync_stops_between_two_steps_and_goes_on_exactly(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, signum: int
) -> None:
    """Actor 1 is in the middle of a block; the other has finished its own, which waits."""
    path = tmp_path / "run"
    job = paused(train(path, *WORDS), tmp_path / "pause", at=400, rank=1)
    job.send(signum)
    time.sleep(1.0)  # on its way through mpiexec to the learner
    go_on(tmp_path / "pause")
    assert job.wait().code == 128 + signum
    assert summary_of(path)["reason"] == signal.Signals(signum).name
    kept = newest(path)
    assert kept.numbers["counters"]["steps"] == 2 * 384
    assert len(kept.arrays["envs"]["0/begun/actions"]) == 16
    assert {name.partition("/")[0] for name in kept.arrays["pending"]} == {"000002"}
    run(resume(path)).ok()
    whole = reference(tmp_path_factory.getbasetemp(), "stops", *WORDS)
    assert_same(everything_of(path), everything_of(whole))


@pytest.mark.parametrize("workflow", ["async", pytest.param("rma", marks=pytest.mark.slow)])
def test_the_others_leave_a_checkpoint_too(tmp_path: Path, workflow: str) -> None:
    path = tmp_path / "run"
    command = train(path, *WORDS, "--workflow", workflow, "--total_steps", 10**7)
    job = Job([*command, "--checkpoint_interval", "1000"])
    table = path / "progress.csv"
    wait_until(lambda: table.exists() and len(table.read_bytes().splitlines()) > 3)
    job.send(signal.SIGTERM)
    assert job.wait().code == 128 + signal.SIGTERM
    assert newest(path).numbers["counters"]["steps"] == summary_of(path)["timesteps_total"] > 0
    assert summary_of(path)["reason"] == "SIGTERM"
