"""Waiting that leaves the core to the simulation."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_YIELDS = 20  # polls before the first sleep
_SHORTEST, _LONG, _LONGEST = 20e-6, 1e-3, 50e-3


def wait_for(poll: Callable[[], T | None], brisk: float = 0.0) -> T:
    """Call ``poll`` until it returns something else than None, and return that.

    Polls briefly, then sleeps an eighth of the time waited so far, up to 1 ms; a wait of over a
    tenth of a second sleeps a hundredth of it, up to 50 ms, so that idle ranks cost next to nothing.
    ``brisk`` seconds are polled without sleeping first, yielding the core to whoever wants it: for
    what only moves while it is polled, such as an all-reduce under way.
    """
    for _ in range(_YIELDS):
        if (found := poll()) is not None:
            return found
        os.sched_yield()
    start = time.perf_counter()
    while (found := poll()) is None:
        waited = time.perf_counter() - start
        if waited < brisk:
            os.sched_yield()
            continue
        time.sleep(min(max(waited / 8, _SHORTEST), max(_LONG, min(waited / 100, _LONGEST))))
    return found
