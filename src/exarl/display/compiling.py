"""Compiling: what the user sees of it, and how the clock counts it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from exarl.display.progress import Progress
from exarl.records.clock import Clock


class Compiling:
    """``with compiling():`` around a compilation inside the phase ``learn``, or another one.

    Its time is counted as ``compile``. The progress display shows the first compilation of a run, for
    which the user has to wait, and no later one.
    """

    def __init__(self, clock: Clock, progress: Progress) -> None:
        self._clock = clock
        self._progress = progress
        self._shown = False

    @contextmanager
    def __call__(self, within: str = "learn") -> Iterator[None]:
        first, self._shown = not self._shown, True
        if first:
            self._progress.busy("compiling the first update ...")
        start = time.monotonic()
        try:
            with self._clock.phase("compile", within=within):
                yield
        finally:
            if first:
                self._progress.busy("")
        if first:
            took = time.monotonic() - start
            self._progress.note(f"compiled the first update in {took:.1f} s")
