"""The log of a rank: what reaches its file, what reaches the terminal, and what is left afterwards."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from exarl.records.logs import RankLog


@pytest.fixture(autouse=True)
def _as_it_was() -> object:
    logger = logging.getLogger("exarl")
    before = logger.level, list(logger.handlers)
    yield
    assert (logger.level, list(logger.handlers)) == before, "what was attached is gone again"


def speak() -> None:
    for name in ("exarl.training", "exarl.envs.guard"):
        logging.getLogger(name).info("info of %s", name)
        logging.getLogger(name).warning("warning of %s", name)


@pytest.mark.parametrize("terminal", [True, False])
def test_files_get_everything_and_the_terminal_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    log = RankLog(tmp_path / "rank.log", "info", terminal=terminal)
    speak()
    log.close()
    speak()
    text = (tmp_path / "rank.log").read_text()
    assert [line.partition(": ")[2] for line in text.splitlines()] == [
        "info of exarl.training",
        "warning of exarl.training",
        "info of exarl.envs.guard",
        "warning of exarl.envs.guard",
    ]
    shown = capsys.readouterr().err
    assert ("WARNING: warning of exarl.training" in shown) is terminal
    assert "WARNING: warning of exarl.envs.guard" in shown, "every rank has its own environments"
    assert "info of" not in shown


def test_the_level_is_the_one_asked_for(tmp_path: Path) -> None:
    log = RankLog(tmp_path / "rank.log", "warning", terminal=False)
    speak()
    log.close()
    assert "info of" not in (tmp_path / "rank.log").read_text()


def test_a_traceback_goes_into_the_file_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = RankLog(tmp_path / "rank.log", "error", terminal=True)
    try:
        raise ValueError("the cause")
    except ValueError as error:
        log.failed(error)
    log.close()
    text = (tmp_path / "rank.log").read_text()
    assert "ERROR" in text
    assert "Traceback" in text
    assert "ValueError: the cause" in text
    assert "the cause" not in capsys.readouterr().err
