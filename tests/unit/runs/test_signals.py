"""Stop signals: one is a wish, two are an order."""

from __future__ import annotations

import signal

import pytest

from exarl.runs import signals
from exarl.runs.signals import StopSignals


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
