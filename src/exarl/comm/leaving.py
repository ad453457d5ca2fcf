"""The end of a process, whatever threads an environment has left running in it."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from typing import NoReturn

PATIENCE_S = 3.0
"""Seconds that threads which keep Python from ending are given to end by themselves."""


def leave(code: int, patience_s: float = PATIENCE_S) -> NoReturn:
    """End this process with the exit code ``code``.

    Python waits for threads that are not daemons. A simulation's library may leave some that never
    end: they get ``patience_s`` seconds, then everything is closed as usual and they go with the
    process.
    """
    left = _threads_left(time.monotonic() + patience_s)
    if not left:
        sys.exit(code)
    names = ", ".join(thread.name for thread in left[:5])
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"exarl: threads that do not end are left behind: {names}\n")
    from exarl.comm.mpi import finalize

    atexit._run_exitfuncs()
    finalize()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _threads_left(until: float) -> list[threading.Thread]:
    """The threads that Python would wait for and that are still there at ``until``."""
    own = threading.current_thread()
    left = [t for t in threading.enumerate() if t is not own and not t.daemon]
    for thread in left:
        thread.join(max(0.0, until - time.monotonic()))
    return [thread for thread in left if thread.is_alive()]
