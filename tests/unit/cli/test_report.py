"""``exarl report``: one page, or one line and no page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.runs import write_run

pytest.importorskip("plotly")


def test_one_run_gets_its_page_in_its_folder(exarl: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "work/run")
    answer = exarl("report", "run")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("report of 1 run: run/report.html (")
    text = (tmp_path / "work/run/report.html").read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "<h1>EXARL: DQN-v0 · CartPole-v1 · sync</h1>" in text


def test_several_runs_with_all_there_is_to_tell(exarl: Any, tmp_path: Path) -> None:
    for i in range(3):
        failing = {"env_restarts": 4, "env_crash": 4} if i == 2 else {}
        lagging = {"policy_lag_mean": 1.5, "policy_lag_max": 3}
        settings = {"learner.workflow": "async", "learner.seed": i}
        run = write_run(tmp_path / f"work/all/{i}", settings, world=3, **lagging, **failing)
        run.evaluations.write_text("timesteps_total,reward_mean\n500,7\n1000,8\n")
    fused = write_run(tmp_path / "work/fused", {"learner.workflow": "fused"}, ended=False)
    fused.population.write_text("seed,learning_rate,reward_mean\n0,0.001,5\n0,0.1,9\n")
    answer = exarl("report", "all", "fused", "--out", "page.html", "--x", "time")
    assert answer.code == 0, answer
    text = (tmp_path / "work/page.html").read_text()
    titles = (
        "Overview", "Learning curves", "Evaluations", "Losses and other metrics", "Throughput",
        "Where the time went", "Policy lag", "Restarts and failures", "Population",
        "Configuration", "Runs",
    )  # fmt: skip
    found = [text.find(f"<h2>{title}</h2>") for title in titles]
    assert found == sorted(found)
    assert min(found) > 0
    assert "async · 3 ranks (3 runs)" in text
    assert "fused is still running" in text
    assert text.find(">wall time (s)</button>") < text.find(">environment steps</button>")


def test_groups_by_a_parameter(exarl: Any, tmp_path: Path) -> None:
    for i, gamma in enumerate((0.9, 0.9, 0.99)):
        changes = {"agent.gamma": gamma, "agent.learning_rate": 0.1 * (i + 1)}
        write_run(tmp_path / f"work/all/{i}", changes)
    assert exarl("report", "all", "--group-by", "gamma").code == 0
    text = (tmp_path / "work/report.html").read_text()
    assert "gamma 0.9 (2 runs)" in text


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], ["which run directory"]),
        (["nowhere"], ["no run directory at nowhere"]),
        (["run", "empty"], ["empty holds no run"]),
        (["run", "--x", "stpes"], ["stpes", "steps"]),
        (["run", "--group-by", "gama"], ["gama", "gamma"]),
        (["run", "--nope"], ["--nope"]),
        (["run", "--out", "missing/page.html"], ["missing"]),
        (["run", "--out", "empty"], ["it is a folder"]),
    ],
)
def test_bad_words(exarl: Any, tmp_path: Path, words: list[str], parts: list[str]) -> None:
    write_run(tmp_path / "work/run")
    (tmp_path / "work/empty").mkdir()
    before = sorted((tmp_path / "work").rglob("*"))
    exarl("report", *words).refused(*parts)
    assert sorted((tmp_path / "work").rglob("*")) == before
