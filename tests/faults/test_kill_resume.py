"""Killed without notice at any moment and resumed, a run ends as if nothing had happened."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from support.jobs import (
    DEEP,
    LIGHT,
    Job,
    assert_same,
    everything_of,
    learning_of,
    paused,
    resume,
    run,
    summary_of,
    train,
    wait_until,
)

from exarl.records.checkpoint import list_checkpoints

OFTEN = ("--checkpoint_interval", 0)
HARD = (*DEEP, *OFTEN)
EASY = (*LIGHT, "--env", "Replayed-v0", *OFTEN)
GROUP = (*LIGHT, "--env", "Kept-v0", "--process_per_env", 2, *OFTEN)


def kill_after(command: list[str], run_dir: Path, steps: int) -> None:
    """Kill all processes a moment after the checkpoint of ``steps`` appeared."""
    job = Job(command, subject={"delay": 2e-4})

    def reached() -> bool:
        kept = list_checkpoints(run_dir / "checkpoints")
        return job.process.poll() is not None or (bool(kept) and int(kept[0].name) >= steps)

    try:
        wait_until(reached)
        time.sleep(random.uniform(0, 0.02))  # in the next block, or while it is written down
    finally:
        job.kill()
        job.process.wait()


@pytest.mark.parametrize(
    ("words", "procs", "whole"),
    [
        (HARD, 3, "deep3"),
        (GROUP, 3, "light"),
        # The same learner as on three ranks, and the same ranks as DQN's:
        pytest.param(HARD, 1, "deep", marks=pytest.mark.slow),
        pytest.param(EASY, 3, "light3", marks=pytest.mark.slow),
    ],
    ids=["dqn-3-ranks", "group", "dqn", "linear-3-ranks"],
)
def test_killed_at_a_random_time(
    tmp_path: Path,
    words: tuple[object, ...],
    procs: int,
    whole: str,
    request: pytest.FixtureRequest,
) -> None:
    expected = request.getfixturevalue(whole)
    path = tmp_path / "run"
    kill_after(train(path, *words, "--procs", procs), path, random.randrange(100, 1300))
    assert "continuing at step" in run(resume(path)).ok().err
    compare = learning_of if words is GROUP else everything_of
    assert_same(compare(path), compare(expected))


def test_killed_again_and_again(tmp_path: Path, light: Path) -> None:
    path = tmp_path / "run"
    kill_after(train(path, *EASY), path, random.randrange(1, 500))
    for _ in range(3):
        kill_after(resume(path), path, random.randrange(200, 1200))
    run(resume(path)).ok()
    assert_same(everything_of(path), everything_of(light))
    assert len(list_checkpoints(path / "checkpoints")) == 3


@pytest.mark.parametrize("procs", [1, 3])
def test_killed_before_the_first_checkpoint(
    tmp_path: Path, procs: int, light: Path, light3: Path
) -> None:
    path = tmp_path / "run"
    words = (*LIGHT, "--env", "Replayed-v0", "--procs", procs)
    paused(train(path, *words), tmp_path / "pause", at=400, rank=procs // 2).kill()
    ended = run(resume(path)).ok()
    assert "starting from the beginning" in ended.err
    assert_same(everything_of(path), everything_of(light if procs == 1 else light3))


def test_killed_while_starting(tmp_path: Path, light: Path) -> None:
    """Whatever there is of a run directory by then, the same command makes the run."""
    command = train(tmp_path / "run", *EASY)
    paused(command, tmp_path / "pause", at=1, place="make").kill()
    run(command).ok()
    assert_same(everything_of(tmp_path / "run"), everything_of(light))


def test_the_summary_counts_the_whole_run(tmp_path: Path, light: Path) -> None:
    path = tmp_path / "run"
    kill_after(train(path, *EASY), path, 700)
    run(resume(path)).ok()
    counted = ("timesteps_total", "episodes_total", "updates_total", "training_iteration", "reason")
    for name in (*counted, "best_reward_mean", "last_reward_mean", "env_restarts"):
        assert summary_of(path)[name] == summary_of(light)[name], name
