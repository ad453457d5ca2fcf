"""Who works on a study, and whether a worker is still there."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BEAT_S = 10.0
SILENT_S = 90.0
"""Seconds without a sign after which a worker on another host is taken for dead."""


class Owner:
    """This process as a worker of the study in ``folder``; while open, it gives a sign of life.

    The sign is the time of a file, by the clock of the disk that all workers share.
    """

    def __init__(self, folder: Path) -> None:
        host, pid = socket.gethostname(), os.getpid()
        name = f"{host}_{pid}_{secrets.token_hex(2)}"
        self.card: dict[str, Any] = {"name": name, "host": host, "pid": pid, "born": _born(pid)}
        self._folder = folder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Owner:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file().touch()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._file().unlink(missing_ok=True)

    def sees(self, card: Mapping[str, Any] | None) -> bool:
        """Whether the worker that ``card`` names is alive, as far as can be told from here."""
        if card is None:
            return False
        if card["host"] == self.card["host"]:
            return bool(_born(int(card["pid"])) == card["born"])
        try:
            self._file().touch()
            silent = self._file().stat().st_mtime - (self._folder / card["name"]).stat().st_mtime
        except FileNotFoundError:
            return False
        return bool(silent < SILENT_S)

    def _file(self) -> Path:
        return self._folder / str(self.card["name"])

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            with contextlib.suppress(OSError):
                self._file().touch()


def _born(pid: int) -> int | None:
    """When a process of this host was started (in ticks of the kernel); None: there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        return int(text.rsplit(")", 1)[1].split()[19])
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    try:  # a system without /proc
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return 0
    return 0
