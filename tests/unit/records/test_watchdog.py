"""The watchdog writes where a process stands when nothing has moved, and only then."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from exarl.records import watchdog as module
from exarl.records.watchdog import Watchdog, stacks


def waits_in_vain(over: threading.Event) -> None:
    over.wait()


def text_of(path: Path, least: int, until_s: float = 10.0) -> str:
    """What the file holds as soon as it has ``least`` reports."""
    end = time.monotonic() + until_s
    while (text := path.read_text()).count("Timeout") < least and time.monotonic() < end:
        time.sleep(0.02)
    return text


def test_a_process_that_stands_still_is_described_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "stacks.txt"
    watchdog = Watchdog(0.2, path)
    text = text_of(path, least=2)
    watchdog.close()
    assert text.startswith("Timeout (0.2 s)\n")
    assert text.count("Timeout") >= 2
    assert "MainThread:" in text
    assert "text_of" in text


def test_a_report_can_be_read_while_the_process_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "stacks", lambda title: f"{title}\n")
    path = tmp_path / "stacks.txt"
    watchdog = Watchdog(0.1, path)
    text = text_of(path, least=1)
    watchdog.close()
    assert text.startswith("Timeout (0.1 s)\n")


def test_one_that_moves_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "stacks.txt"
    watchdog = Watchdog(2.0, path)
    for _ in range(5):
        time.sleep(0.02)
        watchdog.moved()
    watchdog.close()
    assert path.read_text() == ""


def test_without_a_limit_there_is_no_watchdog(tmp_path: Path) -> None:
    watchdog = Watchdog(None, tmp_path / "stacks.txt")
    watchdog.moved()
    watchdog.close()
    assert not list(tmp_path.iterdir())


def test_stacks_are_those_of_the_other_threads() -> None:
    over = threading.Event()
    thread = threading.Thread(target=waits_in_vain, args=(over,), name="in vain")
    thread.start()
    text = stacks("title")
    over.set()
    thread.join()
    assert text.startswith("title\n")
    assert "in vain:\n" in text
    assert "waits_in_vain" in text
    assert "test_stacks_are" not in text, "the thread that asks is left out"
