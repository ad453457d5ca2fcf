"""What ends a run: the one table of stop rules.

A new rule is a line in ``RULES`` and a parameter in ``config/learner.py``, named in ``STOPS`` there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from exarl.config import LearnerConfig
from exarl.records.metrics import finite

Row = Mapping[str, object]
"""A row of metrics; ``finite`` reads its numbers."""
Limits = Mapping[str, float | None]
"""The limits that are set, by the parameters that set them."""

REWARD = "episode_reward_mean"
CORE_HOURS = "core_hours_total"


@dataclass(frozen=True)
class StopRule:
    """Ends a run when ``column`` of its metrics reaches the limit: a column that counts
    (``Counters.column``), the time, the core-hours, or the mean return.

    ``key`` is the parameter that sets the limit. It is also the ``reason`` in summary.json, which
    ``exarl runs`` and the answer to a resume of a finished run show.
    """

    key: str
    column: str
    total: str  # the name in summary.json of the column's last value
    seconds_left: Callable[[Row, float, float], float | None] | None = None
    """``(row, value, limit)`` -> seconds until the value reaches the limit, or None if the row does not
    tell. A rule without this function cannot be predicted."""


def _at_step_rate(row: Row, done: float, limit: float) -> float | None:
    rate = finite(row, "steps_per_s")
    return (limit - done) / rate if rate is not None and rate > 0 else None


def _at_rate_so_far(row: Row, done: float, limit: float) -> float | None:
    """The column grows by as much per step as so far: episodes, for example, keep their length."""
    steps = finite(row, "timesteps_total")
    return _at_step_rate(row, steps, steps * limit / done) if steps and done > 0 else None


def _on_the_clock(row: Row, done: float, limit: float) -> float:
    return limit - done


RULES = (
    StopRule("total_steps", "timesteps_total", "timesteps_total", _at_step_rate),
    StopRule("n_episodes", "episodes_total", "episodes_total", _at_rate_so_far),
    StopRule("updates", "updates_total", "updates_total", _at_rate_so_far),
    StopRule("wall_time", "time_total_s", "wall_s", _on_the_clock),
    StopRule("core_hours", CORE_HOURS, CORE_HOURS, _at_rate_so_far),
    StopRule("target_reward", REWARD, "last_reward_mean"),
)
"""In the order in which a run that meets several reports them."""


def first_met(config: LearnerConfig, reached: Callable[[str], float | None]) -> str | None:
    """The first rule whose limit is reached, or None: the run goes on.

    ``reached`` gives the present value of a column, None while there is none. The reward has none
    before ``reward_window`` episodes have ended.
    """
    for rule in RULES:
        limit = getattr(config, rule.key)
        if rule.key == "total_steps" and config.offline:
            continue  # such a run makes no steps, and ends by its updates
        if limit is not None and (value := reached(rule.column)) is not None and value >= limit:
            return rule.key
    return None


def met_by_summary(config: LearnerConfig, summary: Mapping[str, Any]) -> str | None:
    """``first_met`` for a run that has ended; KeyError or TypeError if its summary is damaged."""
    totals = {rule.column: summary.get(rule.total) for rule in RULES}
    if summary["episodes_total"] < config.reward_window:
        totals[REWARD] = None
    return first_met(config, totals.get)


def limit_of(column: str, limits: Limits) -> float | None:
    """The limit on a column, if one is set."""
    found = (finite(limits, rule.key) for rule in RULES if rule.column == column)
    return next(found, None)


def fraction_done(row: Row, limits: Limits) -> float | None:
    """How far the run is towards the limit that is nearest, in [0, 1].

    None where no limit is set that can be predicted, or the row does not tell. The target reward
    cannot be predicted.
    """
    return max((fraction for fraction, _ in _distances(row, limits)), default=None)


def eta_seconds(row: Row, limits: Limits) -> float | None:
    """Seconds until the first limit is reached, or None where none can be predicted.

    Steps are expected at the row's ``steps_per_s``, which leaves out compiling.
    """
    times = (left for _, left in _distances(row, limits) if left is not None)
    return min(filter(math.isfinite, times), default=None)


def _distances(row: Row, limits: Limits) -> Iterator[tuple[float, float | None]]:
    """Of each limit that can be predicted: the fraction that is done, and the seconds that are left."""
    elapsed = finite(row, "time_total_s") or 0.0
    for rule in RULES:
        done, limit = finite(row, rule.column), finite(limits, rule.key)
        if rule.seconds_left is None or done is None or limit is None or limit <= 0:
            continue
        fraction = min(1.0, max(0.0, done / limit))
        left = rule.seconds_left(row, fraction * limit, limit) if fraction < 1 else 0.0
        if left is None and elapsed > 0 and fraction > 0:
            left = elapsed * (1 - fraction) / fraction
        yield fraction, left
