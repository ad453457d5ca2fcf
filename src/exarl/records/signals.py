"""Stop signals: SIGINT (Ctrl-C), SIGTERM (a scheduler), SIGUSR1 (sent on request), SIGHUP (the terminal
was closed)."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

from exarl.records.notes import noted_stop

ECHO_S = 0.1
"""Seconds within which a second signal counts as the same one."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


class StopSignals:
    """While open, the first stop signal is stored in ``received``; a second one interrupts at once.

    A second one within ``ECHO_S`` is ignored: launcher and scheduler may both pass on the same signal.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._at = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        # Python delivers signals to the main thread only.
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.signal(s, self._note) for s in heard()}
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def stop(self, signum: int) -> None:
        """Note a stop signal that another process has received."""
        self.received = signum

    def _note(self, signum: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self.received is None:
            self._at = now
            self.received = noted_stop(signum) if signum == signal.SIGUSR1 else signum
        elif now - self._at > ECHO_S:
            raise KeyboardInterrupt


def heard() -> list[signal.Signals]:
    """The stop signals to handle: all, but under ``nohup`` not SIGHUP."""
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOP_SIGNALS if number != signal.SIGHUP or not nohup]


def name_of(signum: int) -> str:
    return signal.Signals(signum).name
