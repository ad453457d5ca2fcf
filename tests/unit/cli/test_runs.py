"""``exarl runs`` lists runs with their states."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from support.runs import make_row, make_summary, write_run

from exarl.records.alive import own_card
from exarl.records.ending import write_failure, write_summary
from exarl.records.lock import RunLock


def aged(run: Any, seconds: float) -> None:
    at = time.time() - seconds
    os.utime(run.result, (at, at))


def test_every_state_in_a_table(exarl: Any, tmp_path: Path) -> None:
    folder = tmp_path / "work/results_dir"
    done = write_run(folder / "done", {"learner.env": "Pendulum-v1", "learner.agent": "SAC-v0"})
    done.evaluations.write_text("timesteps_total,episodes,reward_mean\n100,5,3.5\n200,5,412.25\n")
    aged(done, 3600)
    stopped = write_run(folder / "deeper/stopped", ended=False)
    with RunLock(stopped):
        write_summary(stopped, {**make_summary(make_row(40, 98.0)), "reason": "SIGTERM"})
    aged(stopped, 7300)
    failed = write_run(folder / "failed", ended=False)
    with RunLock(failed):
        write_failure(failed, RuntimeError("the solver diverged\x1b[31m"))
    aged(failed, 8000)
    killed = write_run(folder / "killed")
    killed.lock.write_text(json.dumps({**own_card(), "born": 1, "part": "theirs"}))
    aged(killed, 9000)
    aged(write_run(folder / "old", ended=False), 400_000)
    with RunLock(write_run(folder / "now", ended=False)):
        answer = exarl("runs")
        assert (answer.code, answer.err) == (0, "")
        told = json.loads(exarl("runs", "results_dir", "--json").out)
    lines = answer.out.splitlines()
    assert lines[0].split() == [
        "run",
        "state",
        "agent",
        "env",
        "steps",
        "reward",
        "evaluation",
        "age",
    ]
    shown = [line.split()[:2] for line in lines[1:]]
    states = ["running", "finished", "stopped", "failed", "killed", "unknown"]
    names = ["now", "done", "deeper/stopped", "failed", "killed", "old"]
    assert shown == [list(pair) for pair in zip(names, states, strict=True)]
    assert lines[2].split()[2:] == ["SAC-v0", "Pendulum-v1", "1,000", "98.17", "412.2", "60", "min"]
    assert lines[4].endswith("RuntimeError: the solver diverged?[31m")
    assert [each["state"] for each in told] == states
    assert told[1]["evaluation"] == 412.25
    assert told[4]["cause"].endswith("is gone and wrote no summary")


def test_what_is_no_folder_of_runs(exarl: Any, tmp_path: Path) -> None:
    assert exarl("runs", "nowhere").code == 2
    (tmp_path / "work/empty").mkdir(parents=True)
    assert "holds no run" in exarl("runs", "empty").err
    assert exarl("runs", "empty", "--bad").code == 2
    assert "usage: exarl runs" in exarl("runs", "--help").out


def test_a_damaged_run_is_a_line_like_others(exarl: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "work/run")
    for file in (run.summary, run.result, run.config):
        file.write_bytes(b"\xff\x00[[")
    assert exarl("runs", ".").out.splitlines()[1].split()[:4] == ["run", "unknown", "-", "-"]
