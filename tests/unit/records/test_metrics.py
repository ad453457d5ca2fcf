"""The tables of a run: which iterations have a row, what is in it, what a resumed run keeps of it."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from exarl.records.directory import RunDirectory
from exarl.records.metrics import (
    COLUMNS,
    MetricsLog,
    finite,
    is_timing,
    mean,
    read_rows,
    read_table,
    row_due,
)


class Recorder:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.closed = False

    def scalars(self, step: int, values: dict[str, float]) -> None:
        self.rows.append((step, values))

    def close(self) -> None:
        self.closed = True


def made(folder: Path) -> RunDirectory:
    (folder / "run").mkdir()
    return RunDirectory(folder / "run")


def row(number: int, **others: Any) -> dict[str, Any]:
    return {"training_iteration": number, "timesteps_total": 10 * number, **others}


def table(run: RunDirectory) -> list[dict[str, str]]:
    with run.progress.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_iteration_has_a_row_at_first_then_every_second_fourth_eighth() -> None:
    for start, stop, stride in ((1, 2000, 1), (2000, 4000, 2), (4000, 8000, 4), (8000, 16000, 8)):
        due = [i for i in range(start, stop) if row_due(i)]
        assert due == [i for i in range(start, stop) if i % stride == 0]


def test_rows_are_in_both_files_and_what_is_no_number_is_empty(tmp_path: Path) -> None:
    run, sink = made(tmp_path), Recorder()
    log = MetricsLog(run, ["loss"], sinks=[sink])
    log.write(row(1, loss=math.nan, episode_reward_mean=math.inf))
    log.write(row(2, loss=0.5))
    log.close()
    first, second = table(run)
    assert list(first) == [*COLUMNS, "loss"]
    assert (first["loss"], second["loss"]) == ("", "0.5")
    assert second["timesteps_total"] == "20"
    assert second["episode_reward_mean"] == ""
    one, two = read_rows(run.result)
    assert one == row(1, loss=None, episode_reward_mean=None)
    assert two == row(2, loss=0.5)
    assert log.rows == 2
    assert sink.closed
    assert [step for step, _ in sink.rows] == [20], "the newest row, at the end at the latest"


def test_a_resumed_run_keeps_its_rows_and_cuts_off_a_lost_future(tmp_path: Path) -> None:
    run = made(tmp_path)
    log = MetricsLog(run, ["loss"])
    for number in range(1, 6):
        log.write(row(number, loss=1.0))
    log.close()
    log = MetricsLog(run, ["loss"], kept=3)
    log.write(row(4, loss=2.0))
    log.close()
    assert log.rows == 4
    assert [found["loss"] for found in table(run)] == ["1.0", "1.0", "1.0", "2.0"]
    assert [found["loss"] for found in read_rows(run.result)] == [1.0, 1.0, 1.0, 2.0]


def test_a_damaged_table_is_written_again_from_the_complete_rows(tmp_path: Path) -> None:
    run = made(tmp_path)
    log = MetricsLog(run, ["loss"])
    log.write(row(1, loss=1.0))
    log.write(row(2, loss=2.0))
    log.close()
    run.progress.write_text("nonsense\n")
    log = MetricsLog(run, ["loss"], kept=2)
    log.write(row(3, loss=3.0))
    log.close()
    assert [found["loss"] for found in table(run)] == ["1.0", "2.0", "3.0"]


def test_a_run_of_another_version_goes_on_with_its_columns(tmp_path: Path) -> None:
    run = made(tmp_path)
    run.progress.write_text("timesteps_total,training_iteration,extra\n10,1,7\n")
    run.result.write_text(json.dumps(row(1, extra=7)) + "\n")
    log = MetricsLog(run, ["loss"], kept=1)
    log.write(row(2, extra=8, loss=1.0))
    log.close()
    assert run.progress.read_text().splitlines()[1:] == ["10,1,7", "20,2,8"]


def test_evaluations_have_one_header_and_a_row_each(tmp_path: Path) -> None:
    run, sink = made(tmp_path), Recorder()
    log = MetricsLog(run, [], sinks=[sink])
    log.evaluated(100, [1.0, 3.0, 5.0], [10, 20, 60])
    log.evaluated(200, [2.0], [4])
    log.close()
    first, second = read_table(run.evaluations)
    assert first == {
        "timesteps_total": 100,
        "episodes": 3,
        "reward_mean": 3,
        "reward_min": 1,
        "reward_max": 5,
        "length_mean": 30,
    }
    assert second["reward_mean"] == 2
    assert sink.rows == [
        (100, {"evaluation/reward_mean": 3.0}),
        (200, {"evaluation/reward_mean": 2.0}),
    ]


@pytest.mark.parametrize("last", ['{"a": ', "[1, 2]", "\x00"])
def test_rows_are_read_as_far_as_they_are_whole(tmp_path: Path, last: str) -> None:
    path = tmp_path / "result.jsonl"
    path.write_text(f'{{"a": 1}}\n{{"a": 2}}\n{last}\n{{"a": 4}}\n')
    assert read_rows(path) == [{"a": 1}, {"a": 2}]
    assert read_rows(tmp_path / "none.jsonl") == []


def test_numbers_are_finite_or_none() -> None:
    values = {"one": 1, "text": "2.5", "nan": math.nan, "inf": "inf", "none": None, "big": 10**400}
    found = {name: finite(values, name) for name in (*values, "missing")}
    assert found == {**dict.fromkeys([*values, "missing"]), "one": 1.0, "text": 2.5}


def test_the_mean_of_nothing_is_no_number() -> None:
    assert mean([1, 2, 6]) == 3
    assert math.isnan(mean([]))


def test_timing_columns_are_known_by_their_names() -> None:
    timing = {name for name in (*COLUMNS, "time/learn", "loss") if is_timing(name)}
    measured = {"time_total_s", "steps_per_s", "updates_per_s", "time/learn"}
    assert timing - measured == {name for name in COLUMNS if name.startswith("core_hours")}
    assert measured < timing
