"""Runs are found, read as far as they are whole, and put into groups."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from support.runs import make_row, write_run

from exarl.errors import ConfigError
from exarl.records.ending import write_failure
from exarl.records.lock import RunLock
from exarl.report.figures import band, curves, of_rows, rate_of
from exarl.report.groups import differences, make_groups
from exarl.report.read import find_runs, read_run
from exarl.report.runs import sections


def test_runs_are_found_by_name_and_below_folders_each_once(tmp_path: Path) -> None:
    for name in ("b/one", "b/deep/er/two", "a", "b/one/inner", "b/.hidden/three", "b/1/2/3/far"):
        write_run(tmp_path / name)
    (tmp_path / "b/other").mkdir()
    (tmp_path / "b/other/config.json").write_text("{}")  # some other program's
    found = find_runs([str(tmp_path / "b"), str(tmp_path / "a"), str(tmp_path / "b/one")])
    assert [str(path.relative_to(tmp_path)) for path in found] == ["b/deep/er/two", "b/one", "a"]


@pytest.mark.parametrize("name", ["nothing", "empty", "file"])
def test_what_is_no_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    write_run(tmp_path / "good")
    with pytest.raises(ConfigError, match=name):
        find_runs([str(tmp_path / "good"), str(tmp_path / name)])


def test_a_whole_run(tmp_path: Path) -> None:
    made = write_run(tmp_path / "run", rows=7)
    made.evaluations.write_text("timesteps_total,reward_mean\n100,3.5\n200,nonsense\n")
    run = read_run(made.path)
    assert (run.state, run.notes) == ("finished (total_steps)", ())
    assert [row["training_iteration"] for row in run.rows] == list(range(1, 8))
    assert run.values["agent.gamma"] == 0.99
    assert run.evaluations[0] == {"timesteps_total": 100.0, "reward_mean": 3.5}
    assert np.isnan(run.evaluations[1]["reward_mean"])


def test_a_run_that_still_goes_and_one_that_was_killed(tmp_path: Path) -> None:
    made = write_run(tmp_path / "run", ended=False)
    with made.result.open("a") as file:
        file.write('{"training_iteration": 41, "times')  # being written
    run = read_run(made.path)
    assert (run.state, len(run.rows), len(run.notes)) == ("running", 40, 1)
    long_ago = time.time() - 3600
    os.utime(made.result, (long_ago, long_ago))
    run = read_run(made.path)
    assert run.state == "no summary"
    assert "killed" in run.notes[0]


def test_the_summary_of_a_part_before_is_not_believed(tmp_path: Path) -> None:
    made = write_run(tmp_path / "run", rows=5)
    with made.result.open("a") as file:
        file.write(json.dumps(make_row(6, 1.0)) + "\n")
    run = read_run(made.path)
    assert (run.summary, run.state) == ({}, "running")


@pytest.mark.parametrize("name", ["config.json", "manifest.json", "summary.json"])
@pytest.mark.parametrize("text", [b"{", b"", b"[1]", b"\xff\xfe", b'{"learner": 3}'])
def test_a_damaged_file_costs_that_file_only(tmp_path: Path, name: str, text: bytes) -> None:
    made = write_run(tmp_path / "run")
    (made.path / name).write_bytes(text)
    run = read_run(made.path)
    assert len(run.rows) == 40
    titles = [each.title for each in sections(make_groups([run]))]
    assert "Learning curves" in titles


def test_damaged_rows_are_counted(tmp_path: Path) -> None:
    made = write_run(tmp_path / "run", rows=10)
    lines = made.result.read_bytes().split(b"\n")
    made.result.write_bytes(b"\n".join([*lines[:4], b"\xff\x00{", *lines[5:]]))
    run = read_run(made.path)
    assert len(run.rows) == 4
    assert "6 of its rows" in run.notes[0]


# -- groups ------------------------------------------------------------------------------------------


def test_runs_that_differ_only_in_their_seed_are_one_group(tmp_path: Path) -> None:
    runs = [
        read_run(write_run(tmp_path / f"{rate}{seed}", settings).path)
        for rate in (0.1, 0.2)
        for seed in (0, 1, 2)
        if (settings := {"agent.learning_rate": rate, "learner.seed": seed,
                         "learner.run_dir": f"{rate}{seed}"})
    ]  # fmt: skip
    groups = make_groups(runs)
    assert [group.label for group in groups] == ["learning_rate 0.1", "learning_rate 0.2"]
    assert [len(group.runs) for group in groups] == [3, 3]
    (only,) = differences(groups)
    assert (only.key, only.values) == ("agent.learning_rate", (0.1, 0.2))
    assert only.origins == ("command line",) * 2


def test_ranks_make_another_group(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / f"{n}", world=n).path) for n in (1, 3)]
    assert [group.label for group in make_groups(runs)] == ["1 rank", "3 ranks"]


def test_groups_by_a_key(tmp_path: Path) -> None:
    settings = [("DQN-v0", 0.1), ("DQN-v0", 0.2), ("PPO-v0", 0.1)]
    runs = [
        read_run(write_run(tmp_path / str(i), {"learner.agent": a, "agent.learning_rate": r}).path)
        for i, (a, r) in enumerate(settings)
    ]
    by_agent = make_groups(runs, "agent")
    assert [(g.label, len(g.runs)) for g in by_agent] == [("agent DQN-v0", 2), ("agent PPO-v0", 1)]
    assert len(make_groups(runs, "learning-rate")) == 2
    assert len(make_groups(runs)) == 3
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        make_groups(runs, "lerning_rate")


def test_groups_that_no_name_tells_apart_get_numbers(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / str(i)).path) for i in range(2)]
    assert [g.label for g in make_groups(runs)] == ["DQN-v0 · CartPole-v1 · sync"]
    for path in ("0", "1"):
        (tmp_path / path / "config.json").write_text("{")
        (tmp_path / path / "manifest.json").write_text("{}")
    damaged = make_groups([read_run(tmp_path / str(i)) for i in range(2)])
    assert len({group.label for group in damaged}) == 2


# -- curves ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_band_is_that_of_the_runs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    slopes = rng.normal(size=rng.integers(4, 9))
    x = np.linspace(0, 10, 50)
    grid, low, middle, high = band([(x, slope * x) for slope in slopes])
    for drawn, part in ((low, 25), (middle, 50), (high, 75)):
        np.testing.assert_allclose(drawn, np.percentile(slopes, part) * grid, atol=1e-9)


def test_few_runs_have_a_band_of_extremes_and_short_ones_end(tmp_path: Path) -> None:
    long, short = np.arange(11.0), np.arange(6.0)
    grid, low, middle, high = band([(long, long), (short, short + 2)])
    assert grid.max() <= 5  # where both are
    np.testing.assert_allclose([low, middle, high], [grid, grid + 1, grid + 2])


def test_rates_are_those_of_the_totals(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", rows=200).path)
    seconds, rate = rate_of("timesteps_total")(run)
    np.testing.assert_allclose(rate, 50.0)  # 25 steps each half second
    assert len(seconds) <= 60


def test_long_runs_are_thinned(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / str(i), rows=5000).path) for i in range(2)]
    drawn = curves(make_groups(runs), of_rows("episode_reward_mean", "steps"), "x", "y")
    assert drawn is not None
    assert max(len(trace["x"]) for trace in drawn.data) <= 1000


def test_a_run_that_failed_says_so(tmp_path: Path) -> None:
    """And the page does not claim that no environment failed."""
    good, bad = write_run(tmp_path / "good"), write_run(tmp_path / "bad", ended=False)
    assert "No environment failed" in str(sections(make_groups([read_run(good.path)])))
    error = RuntimeError("the solver diverged")
    error.environment = 3  # type: ignore[attr-defined]
    with RunLock(bad):
        running = read_run(bad.path)
        assert running.state == "running"
        assert "No environment failed" not in str(sections(make_groups([running])))
        write_failure(bad, error)
    run = read_run(bad.path)
    assert run.state == "failed: RuntimeError: the solver diverged"
    assert run.notes == ("bad failed: RuntimeError: the solver diverged",)
    told = str(sections(make_groups([run])))
    assert "No environment failed" not in told and "the solver diverged" in told
    assert "failures by kind" in told  # of environments
