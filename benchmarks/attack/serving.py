"""Servers that are attacked, and the good clients that must be served all the same."""

from __future__ import annotations

import os
import re
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.attack.jobs import Begun, finish
from benchmarks.fuzz_server import LONGEST, GoodClient

from exarl.errors import EnvironmentFailure

SESSIONS = 4
SERVE = ("serve-env", "CartPole-v1", "--max-sessions", str(SESSIONS), "--max-message", str(LONGEST))
LIMIT_S = 60.0


def listening(server: Begun) -> str:
    """The address of a server that has been started; empty when it does not say one."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if found := re.search(r"^serving \S+ at (\S+)$", server.read()[0], re.MULTILINE):
            return found.group(1)
        time.sleep(0.01)
    return ""


def ended_badly(server: Begun) -> str:
    """Stop the server; what is wrong with how it goes."""
    with suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGTERM)
    return finish(server, limit=time.monotonic() - server.started + 20).wrong(0)


def in_child(judge: Callable[[], str], server: Begun, file: Path) -> str:
    """What ``judge`` says in a process of its own: ZeroMQ's threads do not survive forks."""
    child = os.fork()
    if not child:
        try:
            file.write_text(judge())
        except Exception:  # noqa: BLE001 - the good client was not served
            file.write_text("the good client was not served: " + traceback.format_exc()[-300:])
        finally:
            os._exit(0)
    deadline = time.monotonic() + LIMIT_S
    while not os.waitpid(child, os.WNOHANG)[0]:
        gone, late = has_ended(server.pid), time.monotonic() > deadline
        if gone or late:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            words = (server.read()[1].strip().splitlines() or [""])[-1][:200]
            return f"the server ended: {words}" if gone else "the good client was not served"
        time.sleep(0.01)
    return file.read_text()


def has_ended(pid: int) -> bool:
    """Whether a child is there no more, or only as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def served_again(address: str) -> GoodClient:
    """A new client, as soon as the sessions of the others are known to be gone."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return GoodClient(address)
        except EnvironmentFailure:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
