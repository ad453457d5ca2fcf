"""Waiting without keeping a core from the simulation."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_YIELDS = 20  # polls before the first sleep
_SHORTEST, _LONG, _LONGEST = 20e-6, 1e-3, 50e-3


def pause(waited: float) -> float:
    """Seconds to sleep before the next poll, after this long."""
    return min(max(waited / 8, _SHORTEST), max(_LONG, min(waited / 100, _LONGEST)))


def wait_for(poll: Callable[[], T | None], brisk: float = 0.0) -> T:
    """Call ``poll`` until it returns something other than None, and return that.

    Polls a few times, then sleeps an eighth of the time waited so far, up to 1 ms; after a tenth of a
    second a hundredth of it, up to 50 ms, so that idle ranks cost next to nothing. For the first
    ``brisk`` seconds it only yields the core between two polls: for operations that make progress
    only while they are polled, such as an all-reduce.
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
        time.sleep(pause(waited))
    return found
