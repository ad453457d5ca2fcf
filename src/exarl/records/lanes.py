"""What one rank spends its time on, written while it runs (``--profile lanes``).

``logs/lanes_0003.jsonl`` has lines such as
``{"t": 1795126033.2, "role": "actor", "rss_mb": 81.2, "s": {"env": 0.7, "wait": 0.2}}``: the time at
which it was written, the memory of the process, and the seconds of each phase since the line before.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from pathlib import Path

from exarl.records.clock import Clock
from exarl.records.directory import open_regular

EVERY_S = 1.0
_DENSE_LINES = 1000  # lines after which they become half as frequent, and so on


class LaneLog:
    """Writes a line about once per second from a thread of its own, until ``close``.

    A phase counts when it ends; while none ends there are no lines, and the next line covers the time
    since the last one. A disk that cannot be written is no reason to stop the run.
    """

    def __init__(self, path: Path, role: str, clock: Clock) -> None:
        self._path, self._role = path, role
        self._seconds: dict[str, float] = {}
        clock.lanes = self._seconds
        self._before: dict[str, float] = {}
        self._lines = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="lanes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the last line and end the thread; a second call does nothing."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join(2.0)

    def _write_all(self) -> None:
        over = False
        while not over:
            over = self._over.wait(EVERY_S * (1 << self._lines // _DENSE_LINES))
            line = self._line()
            if line:
                with contextlib.suppress(OSError):
                    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                    with open(open_regular(self._path, flags), "ab") as file:
                        file.write(line)
                self._lines += 1

    def _line(self) -> bytes:
        """What has ended since the last line; empty if nothing has."""
        now = dict(self._seconds)
        now.pop("rollout", None)  # its parts count
        grown = {name: total - self._before.get(name, 0.0) for name, total in now.items()}
        self._before = now
        spent = {name: round(s, 4) for name, s in grown.items() if s > 1e-4}
        if not spent:
            return b""
        card = {"t": round(time.time(), 2), "role": self._role, "rss_mb": _memory(), "s": spent}
        return json.dumps(card).encode() + b"\n"


def _memory() -> float | None:
    """The resident memory of this process in MB; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)
