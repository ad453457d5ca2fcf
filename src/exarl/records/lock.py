"""The lock of a run: only the process whose card is in ``lock.json`` writes to the run.

The file is created by linking a finished one to its name, which only one process can do, also on
network disks. Its holder touches it (``records/alive.py``) and removes it at the end. The lock of a
process that was killed is taken over.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import secrets
import time
from pathlib import Path
from types import TracebackType

from exarl.errors import ConfigError, StorageError
from exarl.records.alive import SILENT_S, Card, Heartbeat, is_alive, is_here, is_locked, own_card
from exarl.records.directory import (
    FULL,
    RunDirectory,
    made_folder,
    open_regular,
    read_regular,
    reason,
    sweep_left_over,
)

log = logging.getLogger(__name__)

LOCK_WAIT = "EXARL_LOCK_WAIT"
"""Environment variable: seconds to wait until a holder that is alive ends (default: 0)."""
PATIENT = {LOCK_WAIT: "120"}
"""For processes that continue a run which may still be writing its last checkpoint."""
_POLL_S = 0.5
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def read_holder(run: RunDirectory) -> dict[str, object] | None:
    """The card of the process that holds a run; None: no process does. {}: it cannot be read."""
    return _read_card(run.lock)


def part_of(run: RunDirectory) -> str | None:
    """The current part of the run: each process that takes the run begins a new part."""
    holder = read_holder(run)
    return str(holder["part"]) if holder and "part" in holder else None


def named(card: Card) -> str:
    """The process of a card in words: its number, its host and when it began."""
    since = f", since {card['since']}" if "since" in card else ""
    return f"process {card.get('pid', '?')} on {card.get('host', 'an unknown host')}{since}"


def refuse_if_held(run: RunDirectory) -> None:
    """ConfigError when a process of this machine holds the run, to fail before anything is started."""
    holder = read_holder(run)
    if not holder or "error" in holder or not is_here(holder) or _patience():
        return
    if is_alive(holder, run.lock, time.time()):
        raise _in_use(run, holder)


def check_part(run: RunDirectory, part: str | None) -> None:
    """StorageError when the run was deleted, or another process has taken it over."""
    if part is None:
        return
    if not run.exists():
        raise StorageError(f"{run.path} is gone: it was moved or deleted while the run went on")
    holder = read_holder(run)
    if holder and holder.get("part") not in (None, part):
        raise StorageError(f"{run.path} was taken over by {named(holder)}")


def store_error(run: RunDirectory, error: str) -> None:
    """Write the error of a failed run into its lock, which then remains.

    This works on a full disk, since the file exists already. Does nothing if it fails.
    """
    card = read_holder(run)
    if card:
        text = json.dumps({**card, "error": error}).encode()
        with contextlib.suppress(OSError), run.lock.open("r+b") as file:
            file.write(text)
            file.truncate()


def clear(run: RunDirectory) -> None:
    """Remove the lock of a run that was not created."""
    with contextlib.suppress(OSError):
        run.lock.unlink()


class RunLock:
    """The right to write to a run. While open, this process holds it.

    Opening creates the run's folder. ConfigError when another process holds the run and is alive. A
    holder on another machine that was silent for less than ``SILENT_S`` may be alive: opening waits
    until it gives a sign of life or that time has passed.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._held = False
        self._stack = contextlib.ExitStack()
        self._card = {
            "part": secrets.token_hex(6),
            **own_card(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        }

    @property
    def run(self) -> RunDirectory:
        return self._run

    @property
    def part(self) -> str:
        """The part of the run that began when this process took it."""
        return str(self._card["part"])

    def __enter__(self) -> RunLock:
        self.take()
        return self

    def take(self) -> None:
        """Take the run, unless this process holds it already."""
        if self._held:
            return
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(made_folder(self._run.path))
                self._take()
                stack.callback(self._remove)
                self._heartbeat = Heartbeat(self._run.lock)
                stack.callback(self._heartbeat.close)
                sweep_left_over(self._run)
            except (StorageError, OSError, ValueError) as error:
                raise _cannot(self._run, error) from error
            self._stack, self._held = stack.pop_all(), True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the run; a second call does nothing."""
        self._held = False
        self._stack.__exit__(kind, error, trace)

    def _remove(self) -> None:
        if _read_card(self._run.lock) == self._card:
            with contextlib.suppress(OSError):
                self._run.lock.unlink()

    def _take(self) -> None:
        lock, first, warned = self._run.lock, None, False
        until = time.monotonic() + _patience()
        aside = lock.with_name(f".{lock.name}.{self.part}.tmp")
        try:
            while True:
                aside.write_text(json.dumps(self._card) + "\n", encoding="utf-8")
                if _linked(aside, lock):
                    return
                holder, now = read_holder(self._run), aside.stat().st_mtime
                touched = _touched(lock)
                if holder is None or touched is None:
                    continue  # it has just ended
                if "error" in holder or not is_alive(holder, lock, now):
                    if self._take_over(holder, aside, now):
                        return
                    continue
                first = first or touched
                certain = is_here(holder) or touched != first or _is_locked(lock)
                if certain and time.monotonic() >= until:
                    raise _in_use(self._run, holder)
                if not warned:
                    warned = True
                    log.warning("%s", _waiting(self._run, holder, certain))
                time.sleep(_POLL_S)
        finally:
            aside.unlink(missing_ok=True)

    def _take_over(self, holder: Card, aside: Path, now: float) -> bool:
        """Replace the lock of a dead holder by ``aside``; False: another process does so.

        The lock exists all the time. Of the processes that notice the dead holder, only the one that
        creates the claim replaces it.
        """
        claim = self._run.lock.with_name(f".{self._run.lock.name}.claim.tmp")
        if not _linked(aside, claim):
            claimer = _read_card(claim)
            if claimer is not None and not is_alive(claimer, claim, now):
                claim.unlink(missing_ok=True)  # it was killed while it replaced the lock
            time.sleep(_POLL_S / 10)
            return False
        try:
            if read_holder(self._run) != holder:
                return False
            log.info("%s: taking over from %s, which is gone", self._run.path, named(holder))
            aside.replace(self._run.lock)
            return True
        finally:
            claim.unlink(missing_ok=True)


def _read_card(path: Path) -> dict[str, object] | None:
    try:
        card = json.loads(read_regular(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return {}
    return card if isinstance(card, dict) else {}


def _linked(aside: Path, lock: Path) -> bool:
    """Link ``aside`` to the name ``lock``; False if that exists."""
    try:
        os.link(aside, lock)
    except FileExistsError:
        # A file server whose first answer was lost is asked again, and then says that it exists.
        return aside.stat().st_nlink == 2
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        try:
            with lock.open("xb") as file:
                file.write(aside.read_bytes())
        except FileExistsError:
            return False
    return True


def _touched(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None


def _is_locked(path: Path) -> bool:
    try:
        handle = open_regular(path)
    except OSError:
        return False
    try:
        return is_locked(handle)
    finally:
        os.close(handle)


def _patience() -> float:
    try:
        return float(os.environ.get(LOCK_WAIT) or 0.0)
    except ValueError:
        return 0.0


def _waiting(run: RunDirectory, holder: Card, certain: bool) -> str:
    if certain:
        return (
            f"{run.path} is held by {named(holder)}; waiting for its end, {_patience():g} s at most"
        )
    return (
        f"{run.path} was held by {named(holder)}; it is taken over when there has been no sign of that"
        f" process for {SILENT_S:g} s"
    )


def _in_use(run: RunDirectory, holder: Card) -> ConfigError:
    return ConfigError(
        f"{run.path} is in use by {named(holder)}: wait for its end or stop it"
        f" (if there is no such process, remove {run.lock})"
    )


def _cannot(run: RunDirectory, error: Exception) -> ConfigError | StorageError:
    """The error for a run that cannot be written: StorageError on a full disk, else ConfigError."""
    cause = error.__cause__ if isinstance(error, StorageError) else error
    text = f"cannot write to {run.path}: {reason(cause if isinstance(cause, Exception) else error)}"
    if getattr(cause, "errno", None) in FULL:
        return StorageError(f"{text}; make room, then try again")
    return ConfigError(text)
