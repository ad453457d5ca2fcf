"""Rows of metrics: what they are made of, and when they are written."""

from __future__ import annotations

import copy
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from exarl.comm.codec import MOST_TOLD
from exarl.config.grammar import read_condition
from exarl.display.progress import Progress
from exarl.records.clock import Clock, fractions
from exarl.records.directory import RunDirectory, writing
from exarl.records.metrics import INFO, MetricsLog, info_columns, mean
from exarl.training.counters import Counters
from exarl.types import EpisodeInfo, Metrics


class SinceRow:
    """Sums over the blocks since the last row: the agent's metrics and the policy lag.

    The metrics of the newest block may still be computed on a device. They are read when those of the
    next block come, so that the device is busy meanwhile. ``look`` then sees those of blocks with
    updates.
    """

    def __init__(self, look: Callable[[Mapping[str, float]], None]) -> None:
        self.sums: dict[str, list[float]] = {}  # name -> [sum, count]
        self.lags: list[float] = [0, 0, 0]  # sum, count, max
        self._newest: Metrics = {}
        self._learnt = False
        self.look = look

    def add(self, metrics: Metrics, lags: Sequence[int], *, learnt: bool) -> None:
        """Count a block; ``learnt``: updates were made."""
        self.settle()
        self._newest, self._learnt = metrics, learnt
        total, count, highest = self.lags
        self.lags = [total + sum(lags), count + len(lags), max(highest, *lags, 0)]

    def settle(self) -> None:
        """Add up the metrics of the newest block, waiting for them."""
        values = {name: float(value) for name, value in self._newest.items()}
        for name, value in values.items():
            pair = self.sums.setdefault(name, [0.0, 0])
            pair[0] += value
            pair[1] += 1
        if self._learnt and values:
            self.look(values)
        self._newest = {}

    def columns(self) -> dict[str, float]:
        """The means, by the names of their columns."""
        self.settle()
        lag_sum, lag_count, lag_max = self.lags
        return {
            "policy_lag_mean": lag_sum / max(lag_count, 1),
            "policy_lag_max": lag_max,
            **{name: total / count for name, (total, count) in self.sums.items()},
        }

    def state(self) -> list[Any]:
        """The sums for a checkpoint, as plain numbers."""
        self.settle()
        return copy.deepcopy([self.sums, self.lags])

    def restore(self, state: Sequence[Any]) -> None:
        """Take over what ``state`` returned; TypeError or ValueError where it is something else."""
        sums, lags = state
        self.sums = {name: [float(total), int(n)] for name, (total, n) in sums.items()}
        self.lags = [number + 0 for number in lags]


class RewardWindow:
    """Returns and lengths of the last episodes."""

    def __init__(self, size: int) -> None:
        self.returns: deque[float] = deque(maxlen=size)
        self.lengths: deque[int] = deque(maxlen=size)
        self.info: deque[EpisodeInfo] = deque(maxlen=min(size, MOST_TOLD))

    def add(
        self,
        returns: Iterable[float],
        lengths: Iterable[int],
        info: Iterable[EpisodeInfo] = (),
    ) -> None:
        self.returns.extend(returns)
        self.lengths.extend(lengths)
        self.info.extend(info)

    def met(self, stop_when: str | None) -> str | None:
        """``stop_when`` where that holds. Smallest and largest values may hold at once, means once
        there are as many episodes as they are taken over."""
        if stop_when is None:
            return None
        condition = read_condition(stop_when, "stop_when")
        name, _, what = condition.name.removeprefix(INFO).rpartition("_")
        if not self.full and what in ("mean", "last"):
            return None
        found = info_columns({name: each[name]} for each in self.info if name in each)
        value = found.get(condition.name, math.nan)
        return "stop_when" if condition.holds(value) else None

    def state(self) -> list[list[Any]]:
        """What ``add`` takes, for a checkpoint."""
        numbers: list[list[Any]] = [list(self.returns), list(self.lengths)]
        return [*numbers, list(self.info)] if self.info else numbers

    def restore(self, state: Sequence[Any]) -> None:
        """Take over what ``state`` returned; TypeError or ValueError where it is something else."""
        returns, lengths, *info = state
        self.add(map(float, returns), map(int, lengths), *info)

    def quartiles(self) -> dict[str, float]:
        """The quartiles of the returns, by the names of their columns; in a long window of every
        n-th return only, to keep rows cheap."""
        ordered = sorted(islice(self.returns, 0, None, 1 + len(self.returns) // 1000))
        last = len(ordered) - 1
        return {
            "episode_reward_q25": ordered[last // 4] if ordered else math.nan,
            "episode_reward_q75": ordered[last - last // 4] if ordered else math.nan,
        }

    @property
    def full(self) -> bool:
        return len(self.returns) == self.returns.maxlen


class RowWriter:
    """Makes rows of metrics and writes each when all its numbers are there.

    ``log`` and ``run`` are None on learners other than the first: these keep the sums since the last
    row, and begin none.
    """

    def __init__(
        self,
        run: RunDirectory | None,
        log: MetricsLog | None,
        progress: Progress,
        clock: Clock,
        since: SinceRow,
        counters: Counters,
    ) -> None:
        self._run, self._log, self._progress, self._clock = run, log, progress, clock
        self._since = since
        self._begun: tuple[dict[str, Any], SinceRow] | None = None  # not yet written
        self._last_row = time.monotonic()
        self._steps, self._updates, self._compiled = counters.steps, counters.updates, 0.0

    def add(self, metrics: Metrics, lags: Sequence[int], *, learnt: bool) -> None:
        """Count a block in the next row."""
        with self._clock.phase("learn"):
            self._since.add(metrics, lags, learnt=learnt)

    def begin(
        self,
        counters: Counters,
        window: RewardWindow,
        seconds: float,
        cost: Mapping[str, float],
    ) -> None:
        """Make the row of this moment, without the metrics that a device may still compute; ``cost``
        are its core-hours."""
        with self._clock.phase("report"):
            now, returns = time.monotonic(), window.returns
            compiled = self._clock.seconds.get("compile", 0.0)  # no part of the speed to expect
            span = max(now - self._last_row - (compiled - self._compiled), 1e-9)
            row = {
                "training_iteration": counters.iteration,
                "timesteps_total": counters.steps,
                "episodes_total": counters.episodes,
                "episode_reward_mean": mean(returns),
                "episode_reward_min": min(returns, default=math.nan),
                "episode_reward_max": max(returns, default=math.nan),
                "episode_len_mean": mean(window.lengths),
                **window.quartiles(),
                **info_columns(window.info),
                "updates_total": counters.updates,
                **counters.totals,
                **{f"env_{kind}": n for kind, n in counters.failures_by_kind().items()},
                **cost,
                "time_total_s": round(seconds, 4),
                "steps_per_s": round((counters.steps - self._steps) / span, 1),
                "updates_per_s": round((counters.updates - self._updates) / span, 1),
            }
            self._begun = row, self._since
            self._last_row, self._compiled = now, compiled
            self._steps, self._updates = counters.steps, counters.updates
            self._since = SinceRow(self._since.look)

    def finish(self) -> None:
        """Write the row that was begun last, if it is not written yet; waits for its metrics."""
        if self._begun is None:
            return
        (row, since), self._begun = self._begun, None
        with self._clock.phase("learn"):
            columns = since.columns()
        assert self._log is not None and self._run is not None
        with self._clock.phase("report"):
            parts = fractions(self._clock.seconds, self._clock.elapsed)
            row |= columns | {f"time/{name}": round(part, 4) for name, part in parts.items()}
            with writing(self._run.path):
                self._log.write(row)
            self._progress.update(row)

    def state(self) -> list[Any]:
        """The sums since the last row, for a checkpoint."""
        return self._since.state()
