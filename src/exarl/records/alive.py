"""Whether the process that wrote its card into a file is still alive, on this machine or another.

On the same machine the process table decides. A process on another machine is alive while it touches
its file, by the clock of the disk that both share, or while it holds a lock on the file: the kernel
keeps that lock even while a simulation blocks all threads of the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from exarl.records.directory import open_regular

BEAT_S = 10.0
"""Seconds between two signs of life."""
SILENT_S = 90.0
"""Seconds without a sign of life after which a process on another host counts as dead."""

Card = Mapping[str, object]
"""What identifies a process, as it is stored in a file."""


def own_card() -> dict[str, object]:
    """The card of this process."""
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "pid": pid,
        "born": born(pid),
        "machine": machine(),
        "job": _job(),
    }


def is_here(card: Card) -> bool:
    """Whether the process of ``card`` would be in this machine's process table."""
    if card.get("machine"):
        return bool(card["machine"] == machine())
    return card.get("host") == socket.gethostname()


def is_alive(card: Card, file: Path, now: float) -> bool:
    """Whether the process of ``card``, which touches ``file``, is alive as far as is known.

    ``now`` is the time by the clock of the file's disk.
    """
    if is_here(card):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return born(int(str(card["pid"]))) in (0, card.get("born"))
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
    """Whether another process holds the lock on an open file; False where the disk has no locks."""
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

    None: there is no such process, or only a zombie. 0: it exists, and nothing else is known.
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


def _job() -> list[object] | None:
    """This Slurm job and how often it was queued again; None outside of Slurm."""
    job = os.environ.get("SLURM_JOB_ID")
    return [job, int(os.environ.get("SLURM_RESTART_COUNT") or 0)] if job else None


def _queued_again(card: Card) -> bool:
    """Whether the process was of this Slurm job before it was queued again: Slurm has ended it."""
    match _job(), card.get("job"):
        case [mine, int(now)], [other, int(then)]:
            return mine == other and now > then
    return False


class Heartbeat:
    """Touches ``file``, which must exist, every ``BEAT_S`` seconds while open, and keeps it locked.

    A daemon thread does this: it does not wait for the work of other threads, and does not keep the
    process alive. It keeps the file that it opened first, not a later one of the same name.
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
            if not self._thread.is_alive():  # otherwise it hangs on a disk that does not answer
                os.close(self._handle)

    def _beat(self) -> None:
        locked = False
        while True:
            if not locked:  # in this thread, since a disk may be slow to refuse
                with contextlib.suppress(OSError):
                    fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    locked = True
            if self._over.wait(BEAT_S):
                return
            with contextlib.suppress(OSError):
                os.utime(self._handle)
