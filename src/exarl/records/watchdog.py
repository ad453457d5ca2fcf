"""A watchdog: a rank that makes no progress writes the stacks of its threads to its log."""

from __future__ import annotations

import faulthandler
import sys
import threading
import time
import traceback
from pathlib import Path

_GRACE_S = 10.0  # that a busy machine may need to let the watching thread run


class Watchdog:
    """Writes every thread's stack to a file when ``moved`` was not called for ``seconds``.

    A thread watches, so it works while the main thread hangs in a solver or in MPI. If a solver blocks
    all threads, the timer of ``faulthandler`` writes the stacks instead. It does not wait for the
    interpreter, which is safe only while no thread runs, as is then the case. ``seconds`` None: no
    watchdog.
    """

    def __init__(self, seconds: float | None, path: Path) -> None:
        self._last = time.monotonic()
        self._over = threading.Event()
        self._file = path.open("a", encoding="utf-8") if seconds else None
        self._thread = threading.Thread(target=self._watch, args=(seconds,), daemon=True)
        if seconds:
            self._thread.start()

    def moved(self) -> None:
        """Report progress; cheap enough for every step."""
        self._last = time.monotonic()

    def close(self) -> None:
        if self._file is not None:
            self._over.set()
            self._thread.join()
            faulthandler.cancel_dump_traceback_later()
            self._file.close()

    def _watch(self, seconds: float) -> None:
        assert self._file is not None
        written = 0.0
        while not self._over.wait(min(1.0, seconds / 4)):
            faulthandler.dump_traceback_later(seconds + _GRACE_S, repeat=True, file=self._file)
            now = time.monotonic()
            if now - max(self._last, written) > seconds:
                written = now
                self._file.write(stacks(f"Timeout ({seconds:g} s)"))
                self._file.flush()


def stacks(title: str) -> str:
    """The stacks of all other threads of this process, below ``title``."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = [f"{title}\n"]
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            lines += [f"{names.get(ident, ident)}:\n", *traceback.format_stack(frame)]
    return "".join(lines)
