"""``exarl watch`` follows a run by its files, and ends with it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.runs import make_row, make_summary, write_run

from exarl.cli import watch


def later(*steps: Callable[[], object]) -> threading.Thread:
    """Take the steps one after the other while the run is watched."""

    def work() -> None:
        for step in steps:
            time.sleep(0.15)
            step()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_finished_run_ends_as_train_does(exarl: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "work/run")
    for words in (["run"], ["run", "--once"]):
        answer = exarl("watch", *words)
        assert (answer.code, answer.err) == (0, "")
        assert answer.out.startswith("DQN-v0 · CartPole-v1 · sync\nrun directory run\n1,000 steps")
        assert "stopped by     total_steps\nreward         98.17 (mean of the last 40" in answer.out


def test_a_run_is_waited_for_and_followed_to_its_end(exarl: Any, tmp_path: Path) -> None:
    path = tmp_path / "work/out/run"
    last = make_row(9, 77.0)

    def go_on() -> None:
        with (path / "result.jsonl").open("a") as file:
            file.write(json.dumps(last) + '\n{"half a row')

    def end() -> None:
        (path / "summary.json").write_text(json.dumps(make_summary(last)))

    thread = later(lambda: write_run(path, rows=3, ended=False), go_on, end)
    answer = exarl("watch", "out", "--interval", "0.05")
    thread.join()
    assert answer.code == 0
    assert answer.err == "no run directory at out; waiting for it (Ctrl-C ends)\n"
    assert "\n75 steps  |" in answer.out
    assert "\n225 steps  |  9 episodes  |  reward 77.0" in answer.out
    assert answer.out.endswith("run directory  out/run\n")


def test_a_continued_run_does_not_end_with_the_old_summary(exarl: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "work/run", rows=5)
    last = make_row(8, 55.0)

    def cut_and_go_on() -> None:
        lines = run.result.read_text().splitlines(keepends=True)[:2]
        run.result.write_text("".join([*lines, json.dumps(last) + "\n"]))

    run.result.touch()  # resumed: younger than the summary
    os.utime(run.summary, (time.time() - 5, time.time() - 5))
    end = make_summary(last)
    thread = later(cut_and_go_on, lambda: run.summary.write_text(json.dumps(end)))
    answer = exarl("watch", "run", "--interval", "0.05")
    thread.join()
    assert answer.code == 0
    assert "reward         55.00" in answer.out


def test_once_tells_the_age_and_a_silent_run(exarl: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "work/run", ended=False)
    assert exarl("watch", "run", "--once").out.splitlines()[-1].startswith("last row ")
    old = time.time() - 600
    os.utime(run.result, (old, old))
    told = exarl("watch", "run", "--once").out.splitlines()[-1]
    assert told == "no new row for 10 min; it was started on node7"
    run.result.unlink()
    assert exarl("watch", "run", "--once").out.splitlines()[-1] == "no row yet"


def test_of_a_folder_the_newest(exarl: Any, tmp_path: Path) -> None:
    for i, age in enumerate((50, 10, 90)):
        run = write_run(tmp_path / f"work/all/{i}")
        for file in (run.result, run.config):
            os.utime(file, (time.time() - age, time.time() - age))
    assert "run directory all/1\n" in exarl("watch", "all", "--once").out


def test_ctrl_c_is_quiet_and_touches_nothing(
    exarl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "work/run", ended=False)
    before = {file: file.stat().st_mtime_ns for file in run.path.rglob("*")}

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch.time, "sleep", interrupt)
    for path in ("run", "not_there_yet"):
        answer = exarl("watch", path)
        assert answer.code == 130
        assert "Traceback" not in answer.err
    assert {file: file.stat().st_mtime_ns for file in run.path.rglob("*")} == before


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], ["which run directory"]),
        (["nowhere", "--once"], ["no run directory at nowhere"]),
        (["file"], ["no run directory at file"]),
        (["run", "--interval", "soon"], ["--interval", "soon"]),
        (["run", "--interval", "0"], ["--interval"]),
        (["run", "more"], ["more"]),
        (["study"], ["exarl sweep --study study --report"]),
        (["damaged", "--once"], ["config.json is damaged"]),
    ],
)
def test_bad_words(exarl: Any, tmp_path: Path, words: list[str], parts: list[str]) -> None:
    write_run(tmp_path / "work/run")
    write_run(tmp_path / "work/study/trial")
    write_run(tmp_path / "work/damaged").config.write_text("[]")
    (tmp_path / "work/study/journal.log").touch()
    (tmp_path / "work/file").touch()
    exarl("watch", *words).refused(*parts)
