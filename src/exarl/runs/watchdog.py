"""A watchdog: a rank in which nothing moves writes down where it stands."""

from __future__ import annotations

import faulthandler
import time
from pathlib import Path


class Watchdog:
    """Writes every thread's stack to a file when ``moved`` was not called for ``seconds``.

    The dump comes from a thread of the interpreter's own, so it works while the main thread hangs
    in a solver or in MPI. None: no watchdog.
    """

    def __init__(self, seconds: float | None, path: Path) -> None:
        self._seconds = seconds
        self._file = path.open("a", encoding="utf-8") if seconds else None
        self._armed = 0.0
        self.moved()

    def moved(self) -> None:
        """Something happened; cheap enough for every block."""
        if self._seconds is None or self._file is None:
            return
        now = time.monotonic()
        if now - self._armed > min(1.0, self._seconds / 4):
            self._armed = now
            faulthandler.dump_traceback_later(self._seconds, repeat=True, file=self._file)

    def close(self) -> None:
        if self._file is not None:
            faulthandler.cancel_dump_traceback_later()
            self._file.close()
