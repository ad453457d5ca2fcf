"""The end of a process in which an environment may have left threads running."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from typing import NoReturn

PATIENCE_S = 3.0
"""Seconds that threads have to end by themselves before the process ends without them."""


def leave(code: int, patience_s: float = PATIENCE_S) -> NoReturn:
    """End this process with the exit code ``code``.

    Python waits for threads that are not daemons. A simulation's library may leave some that never
    end: after ``patience_s`` seconds the usual clean-up is done and the process ends without them.
    """
    left = _threads_left(time.monotonic() + patience_s)
    if not left:
        sys.exit(code)
    names = ", ".join(thread.name for thread in left[:5])
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"exarl: threads that do not end are left behind: {names}\n")
    from exarl.comm.channel import finalize

    atexit._run_exitfuncs()
    finalize()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _threads_left(until: float) -> list[threading.Thread]:
    """The threads that Python would wait for and that still run at ``until``."""
    own = threading.current_thread()
    left = [t for t in threading.enumerate() if t is not own and not t.daemon]
    for thread in left:
        thread.join(max(0.0, until - time.monotonic()))
    return [thread for thread in left if thread.is_alive()]
