"""Profiling a rank with Python's own profiler."""

from __future__ import annotations

import contextlib
import cProfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def profiled(path: Path | None) -> Iterator[None]:
    """Profile the body and write the result to ``path``; None: do not profile."""
    if path is None:
        yield
        return
    profile = cProfile.Profile()
    with profile:
        yield
    profile.dump_stats(path)
