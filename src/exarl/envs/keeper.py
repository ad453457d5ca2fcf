"""The process between EXARL and a program: everything that the program starts ends with it.

    python -I -S keeper.py OWNER LIFELINE PROGRAM WORDS...

starts the program and waits. OWNER is the process that started this one, LIFELINE the number of a pipe
whose other end it holds. A byte in the pipe, or the pipe's end, or the owner's, ends the program. When
the program has ended, for any reason, everything that it has started is ended too, daemons
included: Linux hands orphans to this process (PR_SET_CHILD_SUBREAPER). Then it ends as the program did.

A script that uses nothing but the standard library, since one runs beside each program.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

GRACE_S = 2.0
"""Seconds from SIGTERM to SIGKILL for a program whose owner is gone."""

_PATIENCE_S = 5.0  # until what cannot be killed is given up
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PASSED_ON = signal.SIGUSR2  # which asks an isolated environment for its stacks


def main(words: Sequence[str]) -> NoReturn:
    """Start the program of the command line ``words`` and wait for it."""
    owner, lifeline = map(int, words[:2])
    os.set_inheritable(lifeline, False)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, waker = os.pipe()
    for end in (woken, waker):
        os.set_blocking(end, False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, _PASSED_ON):
        signal.signal(number, lambda *_: None)  # exec gives the program the defaults again
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    child = os.fork()
    if not child:
        _become(libc, words[2], words[3:])
    _let_go(keep={lifeline, woken, waker})
    status = _watch(child, owner, lifeline, woken)
    _kill_descendants(time.monotonic() + _PATIENCE_S)
    _end_like(status)


def _become(libc: ctypes.CDLL, program: str, command: Sequence[str]) -> NoReturn:
    """Become the program; it is killed when its keeper is."""
    keeper = os.getppid()
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        if os.getppid() == keeper != 1:
            os.execv(program, list(command))
    except OSError as error:
        os.write(2, f"{program}: {error.strerror}\n".encode(errors="replace"))
    os._exit(127)


def _let_go(keep: set[int]) -> None:
    """Close what belongs to the program, so that others see when it lets go of it."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(nothing, standard)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib would take longer to import
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _watch(child: int, owner: int, lifeline: int, woken: int) -> int:
    """The status of the program once it has ended, of itself or because it had to."""
    poll = select.poll()
    poll.register(woken, select.POLLIN)
    poll.register(lifeline, select.POLLIN)
    with contextlib.suppress(OSError, AttributeError):
        poll.register(os.pidfd_open(owner), select.POLLIN)
    deadline: float | None = None  # when the program must be gone
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        ready = dict(poll.poll(left))
        if woken in ready and _PASSED_ON in os.read(woken, 4096):
            os.kill(child, _PASSED_ON)
        if (status := _reap(child)) is not None:
            return status
        if deadline is None and (os.getppid() != owner or set(ready) - {woken}):
            asked = bool(lifeline in ready and os.read(lifeline, 1))
            deadline = time.monotonic() + (0.0 if asked else GRACE_S)
            if not asked:
                os.killpg(0, signal.SIGTERM)
            poll = select.poll()
            poll.register(woken, select.POLLIN)
        if deadline is not None and time.monotonic() >= deadline:
            os.kill(child, signal.SIGKILL)


def _reap(child: int) -> int | None:
    """Reap all children that have ended; the status of ``child`` if it is among them."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] == child:
                status = found[1]
    return status


def _kill_descendants(deadline: float) -> None:
    """End all that the program has left, and what these start meanwhile."""
    while (left := _descendants()) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _reap(0)
        time.sleep(0.001)


def _descendants() -> list[int]:
    """The processes that descend from this one."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found, last = [], [os.getpid()]
    while last:
        last = [child for parent in last for child in children.get(parent, ())]
        found += last
    return found


def _end_like(status: int) -> NoReturn:
    """End with the exit code, or by the signal, that the program ended with."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has left its own
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(sys.argv[1:])
