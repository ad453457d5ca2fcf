"""Where the time goes: seconds added up by phase, and spans for the trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter_ns

from exarl.runs.trace import Tracer


class Clock:
    """Adds up the seconds this rank spends in named phases."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.seconds: dict[str, float] = {}
        self._started = perf_counter_ns()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the body's time as ``name``."""
        start = perf_counter_ns()
        try:
            yield
        finally:
            end = perf_counter_ns()
            self.add(name, (end - start) / 1e9)
            self.tracer.add(name, start, end)

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    @property
    def elapsed(self) -> float:
        return (perf_counter_ns() - self._started) / 1e9

    def take(self) -> dict[str, float]:
        """The sums so far, starting again from nothing."""
        taken, self.seconds = self.seconds, {}
        return taken


def fractions(seconds: Mapping[str, float], whole: float) -> dict[str, float]:
    """Each phase as a part of ``whole`` seconds, and what is left as ``other``."""
    whole = max(whole, sum(seconds.values()), 1e-9)
    parts = {name: value / whole for name, value in seconds.items()}
    return parts | {"other": max(0.0, 1 - sum(parts.values()))}
