"""``exarl sweep`` as a user runs it: real trainings in real processes."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from support.jobs import EXARL, Job, run, under_mpi, wait_until

RANDOM = ("--agent", "Random-v0", "--total_steps", "600", "--block_steps", "8:64")


def sweep(study: Path, *words: str) -> list[str]:
    return [*EXARL, "sweep", *RANDOM, "--sampler", "random", "--study", str(study), *words]


def values(study: Path) -> list[tuple[str, ...]]:
    with (study / "trials.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [tuple(v for k, v in row.items() if k != "seconds") for row in rows]


def test_from_a_sweep_to_a_training(tmp_path: Path) -> None:
    study = tmp_path / "study"
    done = run(sweep(study, "--trials", "2", "--seeds", "1", "--jobs", "2")).ok()
    assert "2 of 2 done" in done.out
    assert [row[1] for row in values(study)] == ["complete", "complete"]
    assert (study / "report.html").is_file()
    assert not list((study / "workers").iterdir())
    again = [*EXARL, "train", "--config", study / "best.json", "--run_dir", tmp_path / "run"]
    run(again).ok()
    best = max(values(study), key=lambda row: float(row[2]))
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["learner"]["block_steps"] == int(best[-2])


def test_bad_input_writes_nothing(tmp_path: Path) -> None:
    refused = run([*EXARL, "sweep", "--gama", "0.9,0.99", "--study", tmp_path / "s"])
    assert refused.code == 2
    assert refused.err == "exarl: unknown parameter 'gama' (command line); did you mean 'gamma'?\n"
    assert not list(tmp_path.iterdir())


def test_a_cluster_that_is_not_there_writes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    refused = run(sweep(tmp_path / "s", "--executor", "ray", "--address", "127.0.0.1:9"))
    assert refused.code == 2
    assert refused.err.startswith("exarl: cannot use Ray at 127.0.0.1:9")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_three_kills_lose_nothing_but_running_trials(tmp_path: Path) -> None:
    words = ("--trials", "8", "--seeds", "2", "--jobs", "2")
    run(sweep(tmp_path / "whole", *words)).ok()
    study, chance = tmp_path / "study", random.Random(1)
    for number in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
        before = done_in(study)
        job = Job(sweep(study, *words))
        wait_until(lambda before=before: len(done_in(study)) > len(before))
        time.sleep(chance.random())
        os.kill(job.process.pid, number)
        job.process.wait()
        wait_until(lambda job=job: not job.pids())  # trainings end by themselves
        assert done_in(study).items() >= before.items()
    run([*EXARL, "sweep", "--study", study]).ok()
    assert values(study) == values(tmp_path / "whole")


def done_in(study: Path) -> dict[str, str]:
    found = {}
    for path in study.glob("trials/*/seed_*/summary.json"):
        text = path.read_text()
        if '"reason": "total_steps"' in text:
            found[str(path)] = text
    return found


@pytest.mark.slow
def test_groups_of_ranks_find_what_processes_find(tmp_path: Path) -> None:
    words = ("--trials", "4", "--seeds", "2")
    run(sweep(tmp_path / "local", *words)).ok()
    run(under_mpi(3, sweep(tmp_path / "ranks", *words))).ok()
    assert values(tmp_path / "ranks") == values(tmp_path / "local")
    pairs = ("--procs", "2", "--trials", "3", "--seeds", "1")
    run(under_mpi(4, sweep(tmp_path / "pairs", *pairs))).ok()
    for manifest in (tmp_path / "pairs").glob("trials/*/seed_1/manifest.json"):
        assert json.loads(manifest.read_text())["layout"]["world"] == 2
    refused = run(under_mpi(3, sweep(tmp_path / "odd", *pairs)))
    assert (refused.code, refused.err.count("3 ranks make no groups of 2")) == (2, 1)


@pytest.mark.slow
def test_several_workers_share_a_study(tmp_path: Path) -> None:
    study = tmp_path / "study"
    asked = run(sweep(study, "--trials", "6", "--seeds", "1", "--executor", "slurm")).ok()
    assert f"exarl slurm --array 0-3 -- sweep --study {study} --worker" in asked.out
    worker = [*map(str, EXARL), "sweep", "--study", str(study), "--worker", "--jobs", "1"]
    jobs = [Job(worker) for _ in range(2)]
    ended = [job.wait().ok() for job in jobs]
    assert sum("6 of 6 done" in one.out for one in ended) >= 1
    assert len(values(study)) == 6
    took = ["".join(one.err.split("[")[1:]).count("setting") for one in ended]
    assert all(took)


@pytest.mark.slow
def test_tasks_of_a_ray_cluster(tmp_path: Path) -> None:
    words = ("--trials", "3", "--seeds", "1", "--jobs", "2")
    run(sweep(tmp_path / "local", *words)).ok()
    run(sweep(tmp_path / "tasks", *words, "--executor", "ray")).ok()
    assert values(tmp_path / "tasks") == values(tmp_path / "local")
