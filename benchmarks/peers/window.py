"""Clock of the peer runners: steps/s between two step counts, printed as one RESULT line.

Imported by the runners beside it (a script's own folder is on its path); not run by itself.
"""

from __future__ import annotations

import json
import os
import time
from importlib.metadata import PackageNotFoundError, version


class Window:
    """Reads the clock when the step count reaches `first` and again at `last`."""

    def __init__(self, first: int = 2_000, last: int = 12_000) -> None:
        self.first, self.last = first, last
        self.start: tuple[float, float, int] | None = None
        self.end: tuple[float, float, int] | None = None

    def at(self, step: int) -> bool:
        """Record the number of steps done; return True once the window is over."""
        if self.start is None and step >= self.first:
            self.start = (time.perf_counter(), time.process_time(), step)
        elif self.end is None and step >= self.last:
            self.end = (time.perf_counter(), time.process_time(), step)
        return self.end is not None

    def result(self) -> dict[str, float]:
        """Steps, wall seconds, CPU seconds (all threads) and steps/s of the window."""
        if self.start is None or self.end is None:
            raise RuntimeError("the run ended before the measured window did")
        pairs = zip(self.start, self.end, strict=True)
        wall, cpu, steps = (last - first for first, last in pairs)
        return {
            "steps": steps,
            "seconds": round(wall, 3),
            "cpu_seconds": round(cpu, 3),
            "steps_per_s": round(steps / wall, 1),
        }


def versions(*names: str) -> dict[str, str]:
    """Versions of those of the named distributions that are installed here."""
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def emit(window: Window, **fields: object) -> None:
    """Print the one line that dqn_speed.py and ppo_speed.py read."""
    record = {**fields, **window.result(), "load1": os.getloadavg()[0]}
    print("RESULT " + json.dumps(record), flush=True)
