"""Stopping a run from outside, by the signal that it listens to."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from exarl.records.alive import is_here
from exarl.records.directory import RunDirectory
from exarl.records.lock import read_holder
from exarl.records.state import RUNNING, state_of

STOP = signal.SIGUSR1


def stop(run: RunDirectory) -> str:
    """Ask the process that holds a run to write a checkpoint and end; say what was done, or why not."""
    holder = read_holder(run)
    if not holder or state_of(run).name != RUNNING:
        return "the run is not running"
    if not is_here(holder):
        return f"the run is on {holder.get('host')}: a signal reaches it only from there"
    try:
        pid = int(str(holder["pid"]))
        if not _catches(pid, STOP):
            return "the run is still starting: it does not listen to signals yet"
        os.kill(pid, STOP)
    except (KeyError, ValueError):
        return "the run's lock.json is damaged"
    except ProcessLookupError:
        return "the run has just ended"
    except PermissionError:
        return "the run belongs to another user"
    return "the run was asked to write a checkpoint and to stop"


def _catches(pid: int, number: signal.Signals) -> bool:
    """Whether the process handles a signal, which would end it otherwise."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error
    mask = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), "0")
    return bool(int(mask, 16) >> (number - 1) & 1)
