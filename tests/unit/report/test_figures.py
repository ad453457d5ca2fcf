"""Every environment has its own axes, and every colour its counterpart on a dark page."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.runs import write_run

from exarl.records.directory import RunDirectory
from exarl.report import figures
from exarl.report.groups import make_groups
from exarl.report.page import COLORS, page
from exarl.report.read import read_run
from exarl.report.runs import sections, state_name
from exarl.report.style import DARK


def groups_of(*runs: RunDirectory, key: str | None = None) -> Any:
    return make_groups([read_run(run.path) for run in runs], key)


def rewards(groups: Any) -> Any:
    found = figures.curves(groups, figures.of_rows("episode_reward_mean", "steps"), "x", "return")
    assert found is not None
    return found


def test_environments_have_axes_of_their_own_and_are_named(tmp_path: Path) -> None:
    cart = write_run(tmp_path / "a", level=500)
    other = write_run(tmp_path / "b", {"learner.env": "Pendulum-v1"}, level=-900)
    drawn = rewards(groups_of(cart, other))
    assert [trace["yaxis"] for trace in drawn.data] == ["y", "y2"]
    assert [note["text"] for note in drawn.layout["annotations"]] == ["CartPole-v1", "Pendulum-v1"]
    (low, _), (_, high) = (drawn.layout[axis]["domain"] for axis in ("yaxis", "yaxis2"))
    assert 0 < high < low < 1  # one below the other
    alone = rewards(groups_of(cart))
    assert "yaxis2" not in alone.layout and not alone.layout["annotations"]


def test_a_group_over_two_environments_is_named_once(tmp_path: Path) -> None:
    cart = write_run(tmp_path / "a")
    other = write_run(tmp_path / "b", {"learner.env": "Pendulum-v1"})
    drawn = rewards(groups_of(cart, other, key="gamma"))
    assert [(t["yaxis"], t["showlegend"]) for t in drawn.data] == [("y", True), ("y2", False)]


def test_the_overview_tells_environment_state_and_evaluation(tmp_path: Path) -> None:
    whole = write_run(tmp_path / "a", {"learner.seed": 1})
    with whole.evaluations.open("w", newline="") as file:
        csv.writer(file).writerows([("timesteps_total", "reward_mean"), (100, 71.0), (200, 63.0)])
    going = write_run(tmp_path / "b", {"learner.seed": 2}, ended=False)
    table = sections(groups_of(whole, going))[0].parts[1]
    told = dict(zip(table.head, table.rows[0], strict=True))  # type: ignore[union-attr]
    assert told["environment"] == "CartPole-v1"
    assert told["state"] == "1 finished, 1 running"
    assert told["evaluation"] == "71"


@pytest.mark.parametrize(
    ("reason", "state"),
    [("n_episodes", "finished"), ("SIGTERM", "stopped"), ("divergence", "failed")],
)
def test_the_state_of_a_run_that_ended(tmp_path: Path, reason: str, state: str) -> None:
    run = write_run(tmp_path / "a")
    summary = json.loads(run.summary.read_text())
    run.summary.write_text(json.dumps({**summary, "reason": reason}))
    assert state_name(read_run(run.path)) == state


def test_a_dark_page_has_a_colour_for_each_of_the_light(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exarl.report.page.plotly_script", lambda: "var Plotly;")
    text = page("title", sections(groups_of(write_run(tmp_path / "a"))))
    drawn = "".join(re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text))
    used = {*re.findall(r'"(#[0-9a-f]{3,6})"', drawn), *COLORS, *figures.PHASES.values()}
    assert "#fff" in used and used <= set(DARK)
    assert len(set(DARK.values())) == len(DARK)
    assert "prefers-color-scheme: dark" in text and f"const DARK = {json.dumps(DARK)}" in text
