"""Notes for the process that launched a run: written where it asks for them, and nowhere else."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from exarl.records.notes import (
    END_FILE,
    ERROR_FILE,
    RUN_FILE,
    STOP_FILE,
    note_end,
    note_error,
    note_run,
    noted_stop,
)


@pytest.fixture(autouse=True)
def _nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (RUN_FILE, ERROR_FILE, END_FILE, STOP_FILE):
        monkeypatch.delenv(name, raising=False)


def test_nothing_is_written_where_no_one_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    note_run(tmp_path)
    note_end("total_steps")
    assert note_error("broken") is False
    assert noted_stop(signal.SIGUSR1) == signal.SIGUSR1
    assert not list(tmp_path.iterdir())


def test_the_run_and_its_end_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(RUN_FILE, str(tmp_path / "run.txt"))
    monkeypatch.setenv(END_FILE, str(tmp_path / "end.txt"))
    note_run(Path("runs/one"))
    note_end("first")
    note_end("second")
    assert (tmp_path / "run.txt").read_text() == str(tmp_path / "runs/one")
    assert (tmp_path / "end.txt").read_text() == "second"


def test_of_several_errors_the_first_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ERROR_FILE, str(tmp_path / "error.txt"))
    assert note_error("the cause") is True
    assert note_error("a consequence") is True
    assert (tmp_path / "error.txt").read_text() == "the cause"
    monkeypatch.setenv(ERROR_FILE, str(tmp_path / "no such folder" / "error.txt"))
    assert note_error("cannot be written") is False


@pytest.mark.parametrize(("text", "expected"), [("15", 15), ("", 10), ("x", 10), (None, 10)])
def test_the_signal_of_the_launcher_is_the_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, expected: int
) -> None:
    path = tmp_path / "stop.txt"
    monkeypatch.setenv(STOP_FILE, str(path))
    if text is not None:
        path.write_text(text)
    assert noted_stop(10) == expected
