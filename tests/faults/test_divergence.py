"""Weights that are not finite: the run stops or goes back, and leaves no such checkpoint, in every
workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs import LIGHT, Ended, learned_rows, newest, resume, run, summary_of, train

KEPT = (*LIGHT, "--env", "Kept-v0", "--checkpoint_interval", 0)
TEAM = ("--agent", "Teamed-v0", "--learner_procs", 2, "--procs", 4)
WAYS: dict[str, tuple[Any, ...]] = {
    "alone": (),
    "sync": ("--procs", 3),
    "groups": ("--procs", 5, "--process_per_env", 2),
    "async": ("--workflow", "async", "--procs", 3),
    "rma": ("--workflow", "rma", "--procs", 3),
    "seed": ("--workflow", "seed", "--procs", 3),
    "async team": ("--workflow", "async", *TEAM),
    "rma team": ("--workflow", "rma", *TEAM),
    "elastic": ("--workflow", "elastic", "--n_actors", 2),
}
STOPPED = ("alone", "async team")
TAKEN_BACK = ("groups",)
"""Tried at every run of the tests; the others when slow."""


def diverging(folder: Path, way: str, *words: Any, **order: Any) -> Ended:
    """A run whose weights become NaN in the tenth block, in a team on the second learner; later where
    a checkpoint takes as long as some blocks."""
    place, rank = ("round", 1) if "team" in way else ("train", 0)
    at = 25 if way in ("async", "rma", "seed") else 10
    if way == "elastic":
        pytest.importorskip("ray")
    subject = {"folder": str(folder), "fault": "diverge", "place": place, "rank": rank, "at": at}
    command = train(folder / "run", *KEPT, *WAYS[way], *words)
    return run(command, subject={**subject, **order})


def each_way(quick: tuple[str, ...]) -> list[Any]:
    return [pytest.param(way, marks=[] if way in quick else pytest.mark.slow) for way in WAYS]


@pytest.mark.parametrize("way", each_way(STOPPED))
def test_it_stops_and_names_the_last_good_checkpoint(tmp_path: Path, way: str) -> None:
    ended = diverging(tmp_path, way)
    assert ended.code == 3, ended.err
    told = summary_of(tmp_path / "run")
    checkpoint = told["divergence"]["checkpoint"]
    assert told["reason"] == "divergence"
    assert f"the last good checkpoint is {checkpoint}" in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err
    kept = newest(tmp_path / "run")
    assert np.isfinite(kept.arrays["agent"]["weights"]).all()
    assert f"{kept.numbers['counters']['steps']:012d}" == Path(checkpoint).name


@pytest.mark.parametrize("way", each_way(TAKEN_BACK))
def test_a_rollback_goes_on_to_the_end(tmp_path: Path, way: str) -> None:
    ended = diverging(tmp_path, way, "--on_divergence", "rollback", once=True).ok()
    assert "rollback 1 of 3" in ended.err
    told = summary_of(tmp_path / "run")
    assert told["reason"] == "total_steps" and told["rollbacks"] == 1
    assert "divergence" not in told
    steps = [row["timesteps_total"] for row in learned_rows(tmp_path / "run")]
    assert steps == sorted(set(steps))
    assert np.isfinite(newest(tmp_path / "run").arrays["agent"]["weights"]).all()


@pytest.mark.slow
def test_a_rollback_draws_other_numbers_and_gives_up_in_the_end(tmp_path: Path) -> None:
    run(train(tmp_path / "straight", *KEPT)).ok()
    diverging(tmp_path, "alone", "--on_divergence", "rollback", once=True).ok()
    straight, back = (learned_rows(tmp_path / name) for name in ("straight", "run"))
    assert straight[:9] == back[:9] and straight[9]["loss"] != back[9]["loss"]
    # The same blow after every rollback.
    ended = diverging(tmp_path / "again", "alone", "--on_divergence", "rollback")
    assert ended.code == 3 and ended.err.count("continuing at step 288") == 3
    assert "after 3 rollbacks" in ended.err.splitlines()[-1]


def test_a_warning_goes_on_but_keeps_the_good_checkpoint(tmp_path: Path) -> None:
    ended = diverging(tmp_path, "alone", "--on_divergence", "warn").ok()
    assert ended.err.count("diverged at step 320: ") == 1
    assert summary_of(tmp_path / "run")["timesteps_total"] == 1504
    assert newest(tmp_path / "run").numbers["counters"]["steps"] == 288


def test_a_job_that_diverged_is_not_started_again(tmp_path: Path) -> None:
    ended = diverging(tmp_path, "sync", "--max_restarts", 2)
    assert ended.code == 3 and "the job was lost" not in ended.err


def test_a_resume_repeats_or_rolls_back(tmp_path: Path) -> None:
    path = tmp_path / "run"
    diverging(tmp_path, "alone")
    subject = {"folder": str(tmp_path), "fault": "diverge", "place": "train", "at": 10}
    assert run(resume(path), subject=subject).code == 3
    ended = run(resume(path, "--on_divergence", "rollback"), subject={**subject, "at": 99}).ok()
    assert "continuing at step 288" in ended.err
