"""The learner acts for all actors: slow ones delay no others, and a stopped run goes on to the bit."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from support.jobs import (
    LIGHT,
    Job,
    assert_same,
    everything_of,
    go_on,
    paused,
    resume,
    run,
    run_all,
    summary_of,
    train,
    wait_until,
)

from exarl.records.metrics import read_rows

SEED = (*LIGHT, "--workflow", "seed", "--envs_per_actor", 2)
NO_LAG = ("--max_policy_lag", 0)


def steps_of(run_dir: Path) -> int:
    rows = read_rows(run_dir / "result.jsonl") if (run_dir / "result.jsonl").exists() else []
    return int(rows[-1]["timesteps_total"]) if rows else 0


def test_a_run_in_parts_is_the_run_of_sync(tmp_path: Path) -> None:
    """Stopped in the middle, traced, and resumed: weights, metrics and environments to the bit."""
    words: tuple[Any, ...] = (*SEED, *NO_LAG, "--procs", 2)
    jobs = {
        "sync": train(tmp_path / "sync", *LIGHT, "--envs_per_actor", 2, "--procs", 2),
        "parts": train(tmp_path / "parts", *words, "--total_steps", 700, "--profile", "trace"),
    }
    for ended in run_all(jobs).values():
        ended.ok()
    events = json.loads((tmp_path / "parts" / "trace.json").read_text())["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert tracks == {(0, 0): "learner", (0, 1): "inference", (1, 0): "actor"}
    assert {e["tid"] for e in events if e["ph"] == "X" and e["name"] == "inference"} == {1}
    run(resume(tmp_path / "parts", "--total_steps", 1500, "--procs", 2)).ok()
    assert_same(everything_of(tmp_path / "parts"), everything_of(tmp_path / "sync"))


def test_a_slow_environment_does_not_hold_up_the_others(tmp_path: Path) -> None:
    words = (*SEED, "--env", "Replayed-v0", "--total_steps", 3000, "--inference_wait", 1)
    job = paused(train(tmp_path / "run", *words, "--procs", 3), tmp_path, at=40, rank=2)
    try:
        before = steps_of(tmp_path / "run")
        wait_until(lambda: steps_of(tmp_path / "run") >= before + 1000, patience=30)
    finally:
        go_on(tmp_path)
    job.wait().ok()
    assert summary_of(tmp_path / "run")["timesteps_total"] >= 3000


def test_a_stop_signal_is_obeyed_and_the_run_goes_on_with_more_actors(tmp_path: Path) -> None:
    words = (*SEED, "--env", "Replayed-v0", "--total_steps", 100_000)
    job = Job(train(tmp_path / "run", *words, "--procs", 2, "--checkpoint_interval", 0.2))
    wait_until(lambda: steps_of(tmp_path / "run") > 1000)
    told = time.monotonic()
    job.send(signal.SIGTERM)
    ended = job.wait()
    assert ended.code == 128 + signal.SIGTERM, ended.err
    assert time.monotonic() - told < 15
    before = summary_of(tmp_path / "run")
    assert before["reason"] == "SIGTERM"
    blocks = before["blocks"]
    assert blocks["trained"] + blocks["left"] + blocks["dropped"] == blocks["produced"]
    steps = before["timesteps_total"] + 1000
    run(resume(tmp_path / "run", "--total_steps", steps, "--procs", 3)).ok()
    assert summary_of(tmp_path / "run")["timesteps_total"] >= steps


@pytest.mark.parametrize(
    ("role", "place", "rank"),
    [("learner", "train", 0), pytest.param("actor", "step", 1, marks=pytest.mark.slow)],
)
def test_the_job_ends_with_its_rank(tmp_path: Path, role: str, place: str, rank: int) -> None:
    subject = {"folder": str(tmp_path), "fault": "raise", "place": place, "rank": rank, "at": 3}
    command = train(tmp_path / "run", *SEED, "--env", "Kept-v0", "--procs", 3)
    ended = Job(command, subject=subject).wait()
    assert ended.code != 0
    assert ended.gone_at - (tmp_path / "struck").stat().st_mtime < 10
    assert ended.err.rstrip().splitlines()[-1] == "RuntimeError: the solver diverged"
    assert f"rank {rank} ({role}) failed" in ended.err


def test_one_learner_only(tmp_path: Path) -> None:
    ended = run(train(tmp_path / "run", *SEED, "--learner_procs", 2, "--procs", 4))
    assert ended.code == 2
    assert "learner_procs" in ended.err
