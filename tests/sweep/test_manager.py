"""Running a study: seeds, failures, pruning, batches, and going on after a stop."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.sweep import FLAGS, Fake, Quiet, config, quadratic, work, write_curve, write_summary

from exarl.errors import ConfigError
from exarl.sweep.executors.fused import check_fused, run_fused
from exarl.sweep.manager import Manager
from exarl.sweep.owner import Owner
from exarl.sweep.study import Study, StudyFolder
from exarl.sweep.trial import Curve, is_finished, last_words, mean_over_steps, summed_up, value_of


@pytest.mark.parametrize(
    ("objective", "values", "found"),
    [
        ("mean", [1, 2, 9], 4.0),
        ("median", [9, 1, 2], 2.0),
        ("median", [1, 2, 3, 10], 2.5),
        ("iqm", [0, 1, 3, 100], 2.0),
        ("iqm", [5], 5.0),
        ("iqm", [0, 3, 9], (0.25 * 0 + 3 + 0.25 * 9) / 1.5),
    ],
)
def test_seeds_are_summed_up(objective: str, values: list[float], found: float) -> None:
    assert summed_up(values, objective) == pytest.approx(found)


def test_every_seed_of_every_setting_is_trained(tmp_path: Path) -> None:
    fake = Fake(quadratic, slots=3)
    rows = work(tmp_path, config(seeds=3, objective="mean"), fake)
    assert fake.most == 3
    assert len(fake.started) == 12
    for row in rows:
        given = {key: repr(value) for key, value in row.point.items()}
        expected = [quadratic({**given, "seed": str(seed)}) for seed in (1, 2, 3)]
        assert list(row.seeds.values()) == expected
        assert row.value == pytest.approx(sum(expected) / 3)
    assert {given["total_steps"] for given in fake.started} == {"1000"}


def test_a_failed_setting_is_told_and_the_sweep_goes_on(tmp_path: Path) -> None:
    def outcome(given: Mapping[str, str]) -> float | str:
        bad = given["gamma"] == "0.9" and given["seed"] == "2"
        return "the reactor exploded" if bad else quadratic(given)

    rows = work(tmp_path, config(seeds=2, sampler="grid", points=2, trials=None), Fake(outcome))
    assert [row.state for row in rows] == ["failed", "complete", "failed", "complete"]
    assert rows[0].error == "seed 2 ended with exit code 1: exarl: the reactor exploded"


def test_a_training_without_a_value_has_failed(tmp_path: Path) -> None:
    rows = work(tmp_path, config(trials=2), Fake(lambda _: float("nan")))
    assert [row.state for row in rows] == ["failed", "failed"]
    assert "last_reward_mean is nan" in rows[0].error


def test_a_training_that_a_scheduler_stops_has_not_failed(tmp_path: Path) -> None:
    calls = []

    def outcome(given: Mapping[str, str]) -> float | str:
        calls.append(given)
        return "stopped" if len(calls) == 2 else quadratic(given)

    rows = work(tmp_path, config(trials=2), Fake(outcome, slots=1))
    assert [row.state for row in rows] == ["waiting", "complete"]
    assert [row.state for row in work(tmp_path, config(trials=2), Fake(outcome))] == [
        "complete"
    ] * 2


def test_a_slow_training_has_failed(tmp_path: Path) -> None:
    fake = Fake(quadratic, patience=lambda n: 10**9 if n == 1 else 1)
    rows = work(tmp_path, config(trials=2, timeout=0.05), fake)
    assert [row.state for row in rows] == ["failed", "complete"]
    assert "took longer than 0.05 s" in rows[0].error


def test_bad_settings_are_pruned_by_their_first_seed(tmp_path: Path) -> None:
    """Settings get worse from the fifth on; with the median as a rule those end early."""
    fake = Fake(lambda g: 100 - 10 * float(g["n_steps"]), slots=1, patience=lambda n: 3)
    flags = {"agent": "Random-v0", "total_steps": "1000", "n_steps": "1:8"}
    study = config(flags, sampler="grid", seeds=2, trials=None, pruner="median")
    rows = work(tmp_path, study, fake)
    assert [row.state for row in rows] == ["complete"] * 4 + ["pruned"] * 4
    trained = [given["n_steps"] for given in fake.started]
    assert trained == ["1", "1", "2", "2", "3", "3", "4", "4", "5", "6", "7", "8"]
    assert all((tmp_path / f"trials/000{n}/seed_1/summary.json").exists() for n in range(8))


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_a_batch_does_not_depend_on_timing(sampler: str, tmp_path: Path) -> None:
    def go(name: str, slots: int, patience: Any) -> list[Any]:
        fake = Fake(quadratic, slots, patience)
        study = config(sampler=sampler, trials=16, batch=4)
        return [(row.point, row.value) for row in work(tmp_path / name, study, fake)]

    calm = go("calm", 1, lambda n: 1)
    hasty = go("hasty", 4, lambda n: 1 + 7 * n % 5)
    assert calm == hasty
    assert max(v for _, v in calm[12:]) > sum(v for _, v in calm[:4]) / 4  # it does learn


class Interrupting(Fake):
    """Sends this process a signal when N trainings have been started."""

    def start(self, job: Any) -> Any:
        handle = super().start(job)
        if len(self.started) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return handle


def test_an_interrupted_study_goes_on_where_it_was(tmp_path: Path) -> None:
    study, folder = config(seeds=2, sampler="tpe"), StudyFolder(tmp_path)
    first = Interrupting(quadratic, slots=2, patience=lambda n: 10**9 if n == 4 else 2)
    with Owner(folder.workers) as owner:
        opened = Study(folder, study, owner)
        assert Manager(opened, first, Quiet()).run() == signal.SIGINT
        states = [row.state for row in opened.rows()]
    assert states == ["complete", "waiting", "waiting", "waiting"]
    before = {row.setting: row.point for row in opened.rows() if row.point}
    done = [given["run_dir"] for given in first.started if is_finished(Path(given["run_dir"]))]
    assert len(done) == 3  # of the second setting one seed
    second = Fake(quadratic, slots=2)
    rows = work(tmp_path, study, second)
    assert [row.state for row in rows] == ["complete"] * 4
    assert all(rows[setting].point == point for setting, point in before.items())
    again = [given["run_dir"] for given in second.started]
    assert not set(done) & set(again)  # trainings that had ended are not made again
    assert len(done) + len(again) == 8


def test_a_worker_leaves_when_there_is_nothing_to_take(tmp_path: Path) -> None:
    study, folder = config(trials=2), StudyFolder(tmp_path)
    with Owner(folder.workers) as other:
        held = Study(folder, study, other)
        held.prepare()
        assert held.ask() is not None
        rows = work(tmp_path, study, Fake(quadratic), wait=False)
        assert [row.state for row in rows] == ["running", "complete"]


def test_whole_batches_as_one_program(tmp_path: Path) -> None:
    calls = []

    def population(words: Any, points: Any, seeds: Any, run_dir: Path) -> list[list[float]]:
        calls.append((list(words), len(points), list(seeds), run_dir))
        nan = float("nan")
        return [[p["gamma"], nan if p["learning_rate"] > 5e-3 else 1.0] for p in points]

    flags = {**FLAGS, "gamma": "0.9:0.99", "workflow": "fused"}
    study, folder = (
        config(flags, trials=10, batch=4, seeds=2, objective="mean"),
        StudyFolder(tmp_path),
    )
    check_fused(study)
    with pytest.raises(ConfigError, match="needs --workflow fused"):
        check_fused(config({**flags, "workflow": "sync"}))
    with Owner(folder.workers) as owner:
        opened = Study(folder, study, owner)
        assert run_fused(opened, population, Quiet()) is None
        rows = opened.rows()
    assert [count for _, count, _, _ in calls] == [4, 4, 2]
    words, _, seeds, _ = calls[0]
    assert words == ["--agent=PPO-v0", "--total_steps=1000", "--workflow=fused"]
    assert seeds == [1, 2]
    for row in rows:
        failed = float(row.point["learning_rate"]) > 5e-3
        assert row.state == ("failed" if failed else "complete")
        assert failed or row.value == pytest.approx((float(row.point["gamma"]) + 1) / 2)
    assert any(row.state == "failed" for row in rows)


# -- reading a training's files ----------------------------------------------------------------------


def test_a_curve_is_read_piece_by_piece(tmp_path: Path) -> None:
    write_curve(tmp_path, 100.0, 1000)
    text = (tmp_path / "result.jsonl").read_text()
    growing = tmp_path / "growing.jsonl"
    curve = Curve(growing, 1000, marks=5)
    assert curve.news() == []
    growing.write_text(text[: len(text) // 2 + 7])  # in the middle of a row
    first = curve.news()
    growing.write_text(text)
    assert first + curve.news() == [(1, 20.0), (2, 40.0), (3, 60.0), (4, 80.0), (5, 100.0)]
    assert 0 < len(first) < 5
    assert curve.news() == []


def test_the_metric_of_a_training(tmp_path: Path) -> None:
    write_curve(tmp_path, 100.0, 1000)
    write_summary(tmp_path, 42.0)
    assert value_of(tmp_path, "last_reward_mean") == 42.0
    with (tmp_path / "result.jsonl").open("a") as file:
        file.write(json.dumps({"timesteps_total": 100, "info/e_min": -3.5}) + "\n")
        file.write(json.dumps({"timesteps_total": 101, "info/e_min": None}) + "\n")
    assert value_of(tmp_path, "info/e_min") == -3.5
    assert value_of(tmp_path, "info/e_min:min") == 3.5
    assert value_of(tmp_path, "auc") == pytest.approx(55.0)  # of a straight line from 10 to 100
    assert is_finished(tmp_path)
    write_summary(tmp_path, 42.0, "SIGTERM")
    assert not is_finished(tmp_path)
    assert not is_finished(tmp_path / "nowhere")
    assert mean_over_steps([{"timesteps_total": 5, "episode_reward_mean": None}]) is None


def test_last_words(tmp_path: Path) -> None:
    output = tmp_path / "log"
    assert last_words(output) == ""
    output.write_text("a\nexarl: gamma must be small\nthe launcher ends\n\n")
    assert last_words(output) == "exarl: gamma must be small"
    output.write_text("Traceback (most recent call last):\n  File x\nValueError: no\n")
    assert last_words(output) == "ValueError: no"
