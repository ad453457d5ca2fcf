"""The summary of a run that failed: one line, the first error, and what is known of its progress."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from exarl.errors import ConfigError
from exarl.records.directory import RunDirectory
from exarl.records.ending import describe, write_failure, write_summary
from exarl.types import FAILURES


def made(folder: Path) -> RunDirectory:
    """A run that was created and holds no lock."""
    run = RunDirectory(folder / "run")
    run.path.mkdir()
    run.config.write_text("{}")
    return run


def summary_of(run: RunDirectory) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.summary.read_text())
    return found


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConfigError("bad  key\nin file"), "bad key in file"),
        (ValueError("two\nlines"), "ValueError: two lines"),
        ("Traceback (most recent call last):\n  File x\nKeyError: 'a'", "KeyError: 'a'"),
        (KeyError(), "KeyError"),
        ("x" * 500, "x" * 500),
        ("x" * 501, "x" * 497 + "..."),
    ],
)
def test_an_error_is_one_line(error: BaseException | str, text: str) -> None:
    assert describe(error) == text


def test_an_error_that_cannot_be_described_has_a_line_too() -> None:
    assert "Unspeakable" in describe(Unspeakable())


def test_without_the_learner_the_last_row_tells_how_far_it_came(tmp_path: Path) -> None:
    run = made(tmp_path)
    row = {
        "timesteps_total": 300,
        "episodes_total": 4,
        "updates_total": 90,
        "training_iteration": 3,
        "time_total_s": 1.5,
        "episode_reward_mean": 2.5,
        "env_restarts": 2,
        f"env_{FAILURES[1]}": 1,
    }
    run.result.write_text(json.dumps(row) + "\n")
    write_failure(run, ValueError("no"), rank=3)
    found = summary_of(run)
    assert found["reason"] == found["state"] == "failed"
    assert found["error"] == "ValueError: no"
    assert found["failure"]["rank"] == 3
    assert found["failure"]["environment"] is None
    assert found["failure"]["kind"] is None
    expected = {"timesteps_total": 300, "episodes_total": 4, "updates_total": 90}
    assert expected.items() <= found.items()
    assert (found["steps_per_s"], found["updates_per_s"], found["wall_s"]) == (200.0, 60.0, 1.5)
    assert found["last_reward_mean"] == 2.5
    assert found["env_restarts"] == 2
    assert found["env_failures"] == {**dict.fromkeys(FAILURES, 0), FAILURES[1]: 1}


def test_a_run_without_rows_has_come_nowhere(tmp_path: Path) -> None:
    run = made(tmp_path)
    write_failure(run, "broken")
    found = summary_of(run)
    assert (found["timesteps_total"], found["steps_per_s"], found["updates_per_s"]) == (0, 0.0, 0.0)


def test_a_run_that_was_not_created_leaves_nothing_behind(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    write_failure(run, "broken")
    assert not run.summary.exists()


def test_what_the_learner_knows_comes_first(tmp_path: Path) -> None:
    run = made(tmp_path)
    error = ValueError("no")
    error.environment = 5  # type: ignore[attr-defined]
    write_failure(run, error, {"timesteps_total": 7})
    found = summary_of(run)
    assert found["timesteps_total"] == 7
    assert found["failure"]["environment"] == 5
    assert found["failure"]["kind"] == "raise"


def test_a_second_signal_stops_a_run_and_does_not_fail_it(tmp_path: Path) -> None:
    run = made(tmp_path)
    write_failure(run, KeyboardInterrupt(), {}, signum=signal.SIGTERM)
    assert summary_of(run)["reason"] == "SIGTERM"
    write_failure(run, ValueError("no"), {}, signum=signal.SIGTERM)
    assert summary_of(run)["reason"] == "failed"
    write_failure(run, KeyboardInterrupt(), {})
    assert summary_of(run)["reason"] == "failed"


def test_a_summary_names_its_state(tmp_path: Path) -> None:
    run = made(tmp_path)
    written = write_summary(run, {"reason": "total_steps", "timesteps_total": 5})
    assert written == summary_of(run)
    assert (written["state"], written["error"]) == ("finished", None)
