"""One actor that hangs: checkpoints go on without it, say so, and can be resumed; the run ends."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from support.jobs import Job, newest, paused, resume, run, summary_of, train, wait_until

from exarl.records.checkpoint import list_checkpoints

WORDS = ("--agent", "Bookkeeper-v0", "--env", "Numbered-v0", "--block_steps", 4, "--procs", 4,
         "--checkpoint_interval", 0, "--state_timeout", 0.5)  # fmt: skip
HUNG, AT = 3, 22
"""The rank of an actor and the step that it never ends, in the middle of its sixth block."""


@pytest.fixture(
    scope="module",
    params=["async", *(pytest.param(w, marks=pytest.mark.slow) for w in ("rma", "seed"))],
)
def hung(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with such an actor, killed when others had gone on for long."""
    folder = tmp_path_factory.mktemp(request.param)
    words = (*WORDS, "--workflow", request.param, "--total_steps", 10**6)
    job = paused(train(folder / "run", *words), folder, at=AT, rank=HUNG)
    try:
        first = wait_until(lambda: without(folder / "run"))
        wait_until(lambda: without(folder / "run") >= first + 300)
    finally:
        job.kill()
        job.process.wait()
    return folder / "run"


def without(path: Path) -> int:
    """Steps of the newest checkpoint, if that went on without an actor."""
    if not list_checkpoints(path / "checkpoints"):
        return 0
    numbers = newest(path).numbers
    return int(numbers["counters"]["steps"]) if "silent_actors" in numbers else 0


def test_checkpoints_go_on_with_its_last_known_state(hung: Path) -> None:
    checkpoint = newest(hung)
    assert checkpoint.numbers["silent_actors"] == [HUNG]
    envs = checkpoint.arrays["envs"]
    counts = dict(a.tolist() for name, a in envs.items() if name.endswith("numbered"))
    assert counts.get(100 * HUNG, 0) < AT <= min(n for e, n in counts.items() if e != 100 * HUNG)
    log = (hung / "logs" / "rank_0000.log").read_text()
    assert log.count(f"no answer from actor {HUNG}") == 1, "said once, not at every checkpoint"


def test_such_a_checkpoint_can_be_resumed(hung: Path) -> None:
    steps = int(newest(hung).numbers["counters"]["steps"])
    run(resume(hung, "--total_steps", steps + 400)).ok()
    checkpoint = newest(hung)
    assert "silent_actors" not in checkpoint.numbers
    envs = checkpoint.arrays["envs"]
    counts = dict(a.tolist() for name, a in envs.items() if name.endswith("numbered"))
    assert counts[100 * HUNG] > 40


@pytest.mark.slow
@pytest.mark.parametrize("workflow", ["async", "rma"])
def test_a_run_that_is_finished_does_not_wait_for_it_for_ever(
    tmp_path: Path, workflow: str
) -> None:
    words = (*WORDS, "--workflow", workflow, "--total_steps", 1000)
    job: Job = paused(train(tmp_path / "run", *words), tmp_path, at=AT, rank=HUNG)
    ended = job.wait()
    assert ended.code == 1
    assert f"no answer from actor {HUNG}" in ended.err
    assert summary_of(tmp_path / "run")["reason"] == "total_steps"


@pytest.mark.slow
def test_rma_trains_before_the_slowest_actor_has_its_first_block(tmp_path: Path) -> None:
    words = (*WORDS, "--workflow", "rma", "--total_steps", 10**6)
    job = paused(train(tmp_path / "run", *words), tmp_path, at=1, rank=HUNG)
    try:
        wait_until(lambda: without(tmp_path / "run"))
    finally:
        job.kill()
        job.process.wait()


def test_rma_can_be_stopped_while_environments_are_made(tmp_path: Path) -> None:
    command = train(tmp_path / "run", *WORDS, "--workflow", "rma", "--env", "Replayed-v0")
    job = paused(command, tmp_path, at=1, rank=HUNG, place="make")
    time.sleep(1.0)  # the others come to wait for it
    job.send(signal.SIGTERM)
    ended = job.wait(15)
    assert ended.code == 143
    assert "stopped by SIGTERM before the run began" in ended.err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_one_that_was_only_slow_is_asked_again(tmp_path: Path) -> None:
    words = (*WORDS, "--workflow", "async", "--total_steps", 10**6)
    job = paused(train(tmp_path / "run", *words), tmp_path, at=AT, rank=HUNG)
    try:
        wait_until(lambda: without(tmp_path / "run"))
        (tmp_path / "go").touch()
        wait_until(lambda: not without(tmp_path / "run"))
    finally:
        job.kill()
        job.process.wait()
