"""Whether a process that signed a file is still alive, seen from this host or from another one.

On the same machine the process table knows. Elsewhere a process is alive while it touches its file,
by the clock of the disk that both share, or while it holds a lock on the file: the kernel keeps that
lock also for a process whose simulation lets no thread run.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exarl.records.directory import open_regular

BEAT_S = 10.0
"""Seconds between two signs of life."""
SILENT_S = 90.0
"""Seconds without a sign after which a process on another host is taken for dead."""


def own_card() -> dict[str, Any]:
    """What identifies this process to others."""
    pid = os.getpid()
    job = os.environ.get("SLURM_JOB_ID")
    return {
        "host": socket.gethostname(),
        "pid": pid,
        "born": born(pid),
        "machine": machine(),
        "job": [job, int(os.environ.get("SLURM_RESTART_COUNT") or 0)] if job else None,
    }


def is_here(card: Mapping[str, Any]) -> bool:
    """Whether the process of ``card`` would be in this machine's process table."""
    if card.get("machine"):
        return bool(card["machine"] == machine())
    return card.get("host") == socket.gethostname()


def is_alive(card: Mapping[str, Any], file: Path, now: float) -> bool:
    """Whether the process of ``card``, which touches ``file``, is alive as far as can be told.

    ``now`` is the time by the clock of the file's disk.
    """
    if is_here(card):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return born(int(card["pid"])) in (0, card.get("born"))
        return False
    if _queued_again(card):
        return False
    try:
        handle = open_regular(file)
    except OSError:
        return False
    try:
        return now - os.fstat(handle).st_mtime < SILENT_S or is_locked(handle)
    finally:
        os.close(handle)


def is_locked(handle: int) -> bool:
    """Whether another process holds the lock on an open file, where the disk has such locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(handle, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def born(pid: int) -> int | None:
    """When a process of this machine was started, in the kernel's ticks.

    None: there is none, or only the zombie of one. 0: there is one, and no more can be known.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
        return None if fields[0] in "ZX" else int(fields[19])
    except (OSError, IndexError, ValueError):
        pass
    try:  # no /proc, or one that hides the processes of others
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return 0
    return 0


def machine() -> str:
    """The process table that this process is in: this boot of this machine, or a container of it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - no path of a file
    except OSError:
        return ""


def _queued_again(card: Mapping[str, Any]) -> bool:
    """Whether the process was of this Slurm job before it was queued again: Slurm has ended it."""
    mine, other = own_card()["job"], card.get("job")
    try:
        return bool(mine and other and mine[0] == other[0] and mine[1] > other[1])
    except (TypeError, LookupError):
        return False


class Heartbeat:
    """Touches ``file``, which must exist, every ``BEAT_S`` seconds while open, and keeps it locked.

    A daemon thread does it, so it neither waits for the work of other threads nor keeps the process
    alive. It holds on to the file that was there at first, not to another one of the same name.
    """

    def __init__(self, file: Path) -> None:
        self._handle = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    @property
    def inode(self) -> int:
        return os.fstat(self._handle).st_ino

    def close(self) -> None:
        if not self._over.is_set():
            self._over.set()
            self._thread.join(1.0)
            if not self._thread.is_alive():  # else it hangs on a disk that does not answer
                os.close(self._handle)

    def _beat(self) -> None:
        locked = False
        while True:
            if not locked:  # here and not in the caller: a disk may take its time to say no
                with contextlib.suppress(OSError):
                    fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    locked = True
            if self._over.wait(BEAT_S):
                return
            with contextlib.suppress(OSError):
                os.utime(self._handle)
