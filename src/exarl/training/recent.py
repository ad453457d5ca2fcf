"""What happened since the last row of metrics, and in the last episodes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from exarl.training.rounds import Report


class SinceRow:
    """Sums over the blocks since the last row: the agent's metrics and the policy lag.

    The metrics of the newest block may still be on a device, being computed. They are read when the
    next block's come, and so are waited for while the device has something to do. ``look`` sees those
    of blocks with updates then.
    """

    def __init__(self, look: Callable[[Mapping[str, float]], None]) -> None:
        self.sums: dict[str, list[float]] = {}  # name -> [sum, count]
        self.lags: list[float] = [0, 0, 0]  # sum, count, max
        self._newest: Mapping[str, Any] = {}
        self._learnt = False
        self._look = look

    def add(self, metrics: Mapping[str, Any], lags: Sequence[int], *, learnt: bool) -> None:
        self.settle()
        self._newest, self._learnt = metrics, learnt
        total, count, highest = self.lags
        self.lags = [total + sum(lags), count + len(lags), max(highest, *lags, 0)]

    def settle(self) -> None:
        """Add up what the newest block left, which waits for it."""
        values = {name: float(value) for name, value in self._newest.items()}
        for name, value in values.items():
            pair = self.sums.setdefault(name, [0.0, 0])
            pair[0] += value
            pair[1] += 1
        if self._learnt and values:
            self._look(values)
        self._newest = {}

    def columns(self) -> dict[str, float]:
        self.settle()
        lag_sum, lag_count, lag_max = self.lags
        return {
            "policy_lag_mean": lag_sum / max(lag_count, 1),
            "policy_lag_max": lag_max,
            **{name: total / count for name, (total, count) in self.sums.items()},
        }


class Window:
    """Returns and lengths of the last episodes."""

    def __init__(self, size: int) -> None:
        self.returns: deque[float] = deque(maxlen=size)
        self.lengths: deque[int] = deque(maxlen=size)

    def add(self, report: Report) -> None:
        self.returns.extend(report.returns)
        self.lengths.extend(report.lengths)

    def quartiles(self) -> dict[str, float]:
        """The quartiles of the returns, as a row of metrics names them; of a long window, of every
        n-th return, since a row must not take long."""
        ordered = sorted(islice(self.returns, 0, None, 1 + len(self.returns) // 1000))
        last = len(ordered) - 1
        return {
            "episode_reward_q25": ordered[last // 4] if ordered else math.nan,
            "episode_reward_q75": ordered[last - last // 4] if ordered else math.nan,
        }

    @property
    def full(self) -> bool:
        return len(self.returns) == self.returns.maxlen
