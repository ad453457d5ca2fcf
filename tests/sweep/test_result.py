"""What a study leaves: a configuration that trains, a table, a page."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import pytest
from support.sweep import FLAGS, Fake, config, quadratic, work

from exarl.run.configure import configure
from exarl.sweep.result import importances, write_results
from exarl.sweep.study import SettingRow, Study, StudyFolder
from exarl.sweep.table import Lines, best_of, draw


def outcome(given: Mapping[str, str]) -> float | str:
    return "boom <b>" if float(given["learning_rate"]) > 6e-3 else quadratic(given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    path = tmp_path_factory.mktemp("study")
    study = config({**FLAGS, "hidden": "[64,64],[32]"}, trials=24, seeds=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("exarl.sweep.manager.POLL_S", 0.0)
        work(path, study, Fake(outcome, slots=4))
    (path / "study.json").write_text(json.dumps(study.to_json()))
    write_results(Study(StudyFolder(path), study))
    return StudyFolder(path)


def rows_of(folder: StudyFolder) -> list[SettingRow]:
    from exarl.sweep.spec import read_study

    return Study(folder, read_study(folder.config)).rows()


def test_the_best_setting_is_a_configuration_of_train(folder: StudyFolder) -> None:
    best = best_of(rows_of(folder))
    assert best is not None
    assert best.value == max(row.value for row in rows_of(folder) if row.value is not None)
    found = configure(folder.best)
    for key, value in best.point.items():
        family = "model" if key == "hidden" else "agent"
        stored = found.values[family][key]
        assert (json.dumps(stored).replace(" ", "") if key == "hidden" else stored) == value
    assert (found.learner.agent, found.learner.total_steps) == ("PPO-v0", 1000)
    assert found.learner.run_dir is None


def test_the_table_has_a_line_a_setting(folder: StudyFolder) -> None:
    lines = list(csv.DictReader(folder.table.open(encoding="utf-8")))
    assert [int(line["setting"]) for line in lines] == list(range(24))
    for line in lines:
        if line["state"] == "complete":
            seeds = [float(line["seed_1"]), float(line["seed_2"])]
            assert float(line["value"]) == pytest.approx(sum(seeds) / 2)
        else:
            assert (line["state"], line["value"]) == ("failed", "")
            assert "boom" in line["error"]


def test_learning_rate_matters_most(folder: StudyFolder) -> None:
    from exarl.sweep.spec import read_study

    shares = importances(Study(folder, read_study(folder.config)))
    assert sum(shares.values()) == pytest.approx(1.0)
    assert max(shares, key=lambda key: shares[key]) == "learning_rate"


def test_the_page_is_whole_and_loads_nothing(folder: StudyFolder) -> None:
    text = folder.report.read_text(encoding="utf-8")
    for heading in ("Best setting", "History", "Importance", "Parallel coordinates", "Failures"):
        assert f"<h2>{heading}</h2>" in text
    assert "boom &lt;b&gt;" in text
    assert not re.search(r'<(script|link|img)[^>]*(src|href)="http', text)
    figures = [json.loads(data) for data in figures_of(text)]
    kinds = [figure["data"][0]["type"] for figure in figures]
    assert kinds.count("parcoords") == 1
    assert kinds.count("bar") == 1
    lines = next(f for f in figures if f["data"][0]["type"] == "parcoords")["data"][0]
    assert len(lines["dimensions"]) == 4  # three parameters and the value
    done = sum(row.state == "complete" for row in rows_of(folder))
    assert {len(dimension["values"]) for dimension in lines["dimensions"]} == {done}


def figures_of(text: str) -> list[str]:
    return re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text)


def test_a_study_without_values_has_a_page_too(tmp_path: Path) -> None:
    study = config(trials=2)
    work(tmp_path, study, Fake(lambda _: "no"))
    assert write_results(Study(StudyFolder(tmp_path), study)) is None
    assert "No setting has a value yet" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not (tmp_path / "best.json").exists()


def test_what_is_shown_while_it_runs(folder: StudyFolder) -> None:
    rows, stream = rows_of(folder), StringIO()
    lines = Lines(stream, 24)
    lines.update([])
    for n in range(1, 25):
        lines.update(rows[:n])
    text = stream.getvalue().splitlines()
    assert len(text) == 25
    assert text[0] == "0 of 24 done"
    assert text[-1].startswith("[24/24] setting 23  ")
    assert sum("best so far" in line for line in text) >= 1
    from rich.console import Console

    console = Console(file=StringIO(), width=90)
    console.print(draw("sweep", rows, 24))
    shown = console.file.getvalue().splitlines()
    assert "24 of 24 done" in shown[0]
    assert len(shown) == 3 + 8
