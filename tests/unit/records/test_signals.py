"""Stop signals: one is a wish, two are an order."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from exarl.records import signals
from exarl.records.notes import STOP_FILE
from exarl.records.signals import StopSignals, heard


def test_an_echo_is_no_second_signal() -> None:
    with StopSignals() as stop:
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
        assert stop.received == signal.SIGTERM


def test_a_second_signal_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "ECHO_S", -1.0)
    with StopSignals() as stop:
        signal.raise_signal(signal.SIGUSR1)
        assert stop.received == signal.SIGUSR1
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


def test_a_launcher_says_which_signal_it_stands_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open MPI passes on no other stop signal than SIGUSR1."""
    monkeypatch.setenv(STOP_FILE, str(tmp_path / "stop"))
    for text, expected in (("", signal.SIGUSR1), ("2", signal.SIGINT)):
        (tmp_path / "stop").write_text(text)
        with StopSignals() as stop:
            signal.raise_signal(signal.SIGUSR1)
            assert stop.received == expected


def test_under_nohup_a_run_outlives_the_terminal() -> None:
    assert signal.SIGHUP in heard()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signal.SIGHUP not in heard()
        with StopSignals():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
