"""``exarl serve-env --bind ipc://...`` at an address where there is something already."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from benchmarks.attack.jobs import begin, exarl, kill_descendants
from benchmarks.attack.serving import SERVE, ended_badly, in_child, listening, served_again
from benchmarks.attack.tries import Attempt


def at_a_file(rng: random.Random, work: Path) -> Attempt:
    """An ``ipc://`` address at which there is something already."""
    way = rng.choice(
        ["a file", "a folder", "a pipe", "a link to a file", "abstract", "live", "stale"]
    )
    path = work / "here"
    if way in ("live", "stale"):
        return at_a_socket(way, work)
    precious = b"precious"
    match way:
        case "a file":
            path.write_bytes(precious)
        case "a folder":
            path.mkdir()
        case "a pipe":
            os.mkfifo(path)
        case "a link to a file":
            (work / "kept").write_bytes(precious)
            path.symlink_to("kept")
    before = path.lstat() if way != "abstract" else None
    address = rng.choice(["ipc://@here", "ipc://@"]) if way == "abstract" else "ipc://here"
    ended = exarl([*SERVE, "--bind", address], work, limit=15)
    what = f"serve-env --bind {address}, which is {way}"
    if problem := ended.wrong(2):
        return Attempt(what, problem)
    if before is not None and (not os.path.lexists(path) or path.lstat().st_ino != before.st_ino):
        return Attempt(what, "what was there is gone")
    return Attempt(what)


def at_a_socket(way: str, work: Path) -> Attempt:
    """The address of another server, which lives, or was killed."""
    what, words = f"serve-env --bind ipc://here, which is {way}", [*SERVE, "--bind", "ipc://here"]
    first = begin(words, work)
    if not listening(first):
        return Attempt(what, "the first server did not start")
    if way == "live":
        other = work.parent / "other"
        other.mkdir()
        second = begin([*SERVE, "--bind", f"ipc://{work / 'here'}"], other)
        code = wait_quietly(second.pid, 15)
        told = (
            "" if code == 2 else f"the second server ended with {code}: {second.read()[1][-200:]!r}"
        )
        told = told or in_child(lambda: play_at(work / "here"), first, work.parent / "verdict")
        return Attempt(what, told or ended_badly(first))
    os.kill(first.pid, signal.SIGKILL)
    kill_descendants()
    second = begin(words, work)
    told = "" if listening(second) else "the address of a dead server is not taken over"
    told = told or in_child(lambda: play_at(work / "here"), second, work.parent / "verdict")
    return Attempt(what, told or ended_badly(second))


def wait_quietly(pid: int, seconds: float) -> int | None:
    """The exit code of a child; None, and it is killed, when it does not end."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def play_at(path: Path) -> str:
    """A good client plays there."""
    client = served_again(f"ipc://{path}")
    client.play(5)
    client.close()
    return ""
