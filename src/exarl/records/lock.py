"""A run is written by one process at a time: the one whose card is in ``lock.json``.

The file is made by linking a finished one to its name, which succeeds for one process only, on network
disks too. Its holder touches it (``records/alive.py``) and removes it at the end. What a killed process
left is taken over.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exarl.errors import ConfigError, StorageError
from exarl.records.alive import SILENT_S, Heartbeat, is_alive, is_here, is_locked, own_card
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
"""Environment variable: seconds to wait for a living holder to end; without it none are."""
PATIENT = {LOCK_WAIT: "120"}
"""For what follows a run that may still be writing its last checkpoint: in sweeps, after restarts."""
_POLL_S = 0.5
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def read_holder(run: RunDirectory) -> dict[str, Any] | None:
    """The card of the process that holds a run; None: no one does. {}: it cannot be read."""
    return _read_card(run.lock)


def part_of(run: RunDirectory) -> str | None:
    """The part of the run that is going on: each process that takes a run begins another one."""
    holder = read_holder(run)
    return str(holder["part"]) if holder and "part" in holder else None


def named(card: Mapping[str, Any]) -> str:
    """A holder in words."""
    since = f", since {card['since']}" if "since" in card else ""
    return f"process {card.get('pid', '?')} on {card.get('host', 'an unknown host')}{since}"


def refuse_if_held(run: RunDirectory) -> None:
    """ConfigError when a process of this machine holds the run; to be told before more is started."""
    holder = read_holder(run)
    if not holder or "error" in holder or not is_here(holder) or _patience():
        return
    if is_alive(holder, run.lock, time.time()):
        raise _in_use(run, holder)


def check_part(run: RunDirectory, part: str | None) -> None:
    """StorageError when the run is no longer there, or another process has taken it over."""
    if part is None:
        return
    if not run.exists():
        raise StorageError(f"{run.path} is gone: it was moved or deleted while the run went on")
    holder = read_holder(run)
    if holder and holder.get("part") not in (None, part):
        raise StorageError(f"{run.path} was taken over by {named(holder)}")


def leave_error(run: RunDirectory, error: str) -> None:
    """Write the error into the lock of a run that failed, which then stays: the room it takes is
    there even on a disk that is full. Nothing where that fails."""
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

    Opening makes the run's folder. ConfigError when another process holds the run and is alive. A
    holder on another machine that has been silent for less than ``SILENT_S`` may be dead or not: it is
    waited for until it shows.
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
    def part(self) -> str:
        """The part of the run that began when this process took it."""
        return str(self._card["part"])

    def __enter__(self) -> RunLock:
        self.take()
        return self

    def take(self) -> None:
        """Take the run, if that has not been done."""
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

    def __exit__(self, *error: Any) -> None:
        """Let go; may be called before the end, and then again."""
        self._held = False
        self._stack.__exit__(*error)

    def _remove(self) -> None:
        if _read_card(self._run.lock) == self._card:
            with contextlib.suppress(OSError):
                self._run.lock.unlink()

    def _take(self) -> None:
        lock, first, told = self._run.lock, None, False
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
                if not told:
                    told = True
                    log.warning("%s", _waiting(self._run, holder, certain))
                time.sleep(_POLL_S)
        finally:
            aside.unlink(missing_ok=True)

    def _take_over(self, holder: Mapping[str, Any], aside: Path, now: float) -> bool:
        """Put ``aside`` in the place of the lock of a dead holder; False: another process does so.

        The name is never free meanwhile, and of all who find the dead one claims the right to it.
        """
        claim = self._run.lock.with_name(f".{self._run.lock.name}.claim.tmp")
        if not _linked(aside, claim):
            claimer = _read_card(claim)
            if claimer is not None and not is_alive(claimer, claim, now):
                claim.unlink(missing_ok=True)  # it died in the moment that this takes
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


def _read_card(path: Path) -> dict[str, Any] | None:
    try:
        card = json.loads(read_regular(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return {}
    return card if isinstance(card, dict) else {}


def _linked(aside: Path, lock: Path) -> bool:
    """Give ``aside`` the name ``lock`` as well, if it is free; whether it was."""
    try:
        os.link(aside, lock)
    except FileExistsError:
        # A server that is asked again, because its first answer was lost, says that it exists.
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


def _waiting(run: RunDirectory, holder: Mapping[str, Any], certain: bool) -> str:
    if certain:
        return (
            f"{run.path} is held by {named(holder)}; waiting for its end, {_patience():g} s at most"
        )
    return (
        f"{run.path} was held by {named(holder)}; it is taken over when there has been no sign of that"
        f" process for {SILENT_S:g} s"
    )


def _in_use(run: RunDirectory, holder: Mapping[str, Any]) -> ConfigError:
    return ConfigError(
        f"{run.path} is in use by {named(holder)}: wait for its end or stop it"
        f" (if there is no such process, remove {run.lock})"
    )


def _cannot(run: RunDirectory, error: Exception) -> ConfigError | StorageError:
    """A disk that is full may have room later; any other that cannot be written to is a wrong place."""
    cause = error.__cause__ if isinstance(error, StorageError) else error
    text = f"cannot write to {run.path}: {reason(cause if isinstance(cause, Exception) else error)}"
    if getattr(cause, "errno", None) in FULL:
        return StorageError(f"{text}; make room, then try again")
    return ConfigError(text)
