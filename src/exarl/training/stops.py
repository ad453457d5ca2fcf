"""When a run has reached what it was asked for."""

from __future__ import annotations

from collections.abc import Mapping

from exarl.config import STOPS, LearnerConfig


def first_met(config: LearnerConfig, reached: Mapping[str, float | None]) -> str | None:
    """The first stop criterion that holds, or None: there is more to do.

    ``reached`` says how far the run has come, by the names of the criteria; None: not known yet.
    """
    for name in STOPS:
        asked, now = getattr(config, name), reached.get(name)
        if asked is not None and now is not None and now >= asked:
            return name
    return None
