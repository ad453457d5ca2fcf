"""The newest whole row of a file that another process writes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from support.runs import make_row, write_run

from exarl.records.follow import last_row, look


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ('{"a": 1', {}),
        ('{"a": 1}\n', {"a": 1}),
        ('{"a": 1}\n{"a": 2}\n{"a": 3', {"a": 2}),
        ('{"a": 1}\n\x00\x00\n', {"a": 1}),
        ('{"a": 1}\n[2]\nnull\n', {"a": 1}),
        ("[" * 100_000 + "\n", {}),
    ],
)
def test_the_newest_whole_row(tmp_path: Path, text: str, found: dict[str, int]) -> None:
    (tmp_path / "result.jsonl").write_text(text)
    assert last_row(tmp_path / "result.jsonl") == found


@pytest.mark.parametrize("width", [10, 1000, 65_520, 65_536, 300_000, 900_000])
def test_rows_longer_than_what_is_read_first(tmp_path: Path, width: int) -> None:
    rows = [json.dumps({"a": i, "wide": "x" * width}) for i in range(3)]
    (tmp_path / "result.jsonl").write_text("\n".join(rows) + '\n{"half')
    assert last_row(tmp_path / "result.jsonl")["a"] == 2


def test_no_file_no_row(tmp_path: Path) -> None:
    assert last_row(tmp_path / "result.jsonl") == {}


def test_when_a_run_has_ended(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rows=5)
    assert look(run).ended
    now = time.time()
    os.utime(run.summary, (now - 3, now - 3))
    os.utime(run.result, (now - 1, now - 1))
    assert not look(run).ended  # opened again a second ago: it goes on
    os.utime(run.summary, (now - 303, now - 303))
    os.utime(run.result, (now - 301, now - 301))
    assert look(run).ended  # a copy, in which files are as old as they were copied
    with run.result.open("a") as file:
        file.write(json.dumps(make_row(6, 1.0)) + "\n")
    os.utime(run.result, (now - 301, now - 301))
    assert not look(run).ended  # killed in a later part


def test_a_damaged_summary_is_none(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    for text in ("{", "[]", ""):
        run.summary.write_text(text)
        assert not look(run).ended


def test_a_clock_that_is_ahead(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", ended=False)
    os.utime(run.result, (time.time() + 100, time.time() + 100))
    assert look(run).age_s == 0


def test_slow_runs_may_be_silent_for_longer(tmp_path: Path) -> None:
    assert look(write_run(tmp_path / "fast")).patience_s == 60
    slow = write_run(tmp_path / "slow", time_total_s=40 * 300.0)
    assert look(slow).patience_s == 3000
