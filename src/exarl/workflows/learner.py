"""The one learning loop: takes blocks, trains, counts, reports, keeps, and knows when to stop."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from exarl.agents.base import ExaAgent
from exarl.config import LearnerConfig
from exarl.runs.checkpoint import Checkpoint, save_checkpoint
from exarl.runs.clock import Clock, fractions
from exarl.runs.directory import RunDirectory, write_json
from exarl.runs.metrics import MetricsLog, mean, row_due
from exarl.runs.progress import Progress
from exarl.runs.signals import StopSignals, name_of
from exarl.types import ACTOR_PHASES, Arrays, Block

log = logging.getLogger(__name__)


@dataclass
class Counters:
    """How far a run has come; all of it is in the checkpoint."""

    iteration: int = 0
    steps: int = 0
    episodes: int = 0
    updates: int = 0
    version: int = 0
    restarts: int = 0
    seconds: float = 0.0  # before this process took over
    best_reward: float | None = None


class Window:
    """Returns and lengths of the last episodes."""

    def __init__(self, size: int) -> None:
        self.returns: deque[float] = deque(maxlen=size)
        self.lengths: deque[int] = deque(maxlen=size)

    def add(self, block: Block) -> None:
        self.returns.extend(block.episode_returns.tolist())
        self.lengths.extend(block.episode_lengths.tolist())

    @property
    def full(self) -> bool:
        return len(self.returns) == self.returns.maxlen


class SinceRow:
    """Sums over the blocks since the last row: the agent's metrics and the policy lag."""

    def __init__(self) -> None:
        self.sums: dict[str, list[float]] = {}  # name -> [sum, count]
        self.lags: list[float] = [0, 0, 0]  # sum, count, max

    def add(self, metrics: Mapping[str, float], lag: int) -> None:
        for name, value in metrics.items():
            pair = self.sums.setdefault(name, [0.0, 0])
            pair[0] += value
            pair[1] += 1
        self.lags = [self.lags[0] + lag, self.lags[1] + 1, max(self.lags[2], lag)]

    def columns(self) -> dict[str, float]:
        lag_sum, lag_count, lag_max = self.lags
        return {
            "policy_lag_mean": lag_sum / max(lag_count, 1),
            "policy_lag_max": lag_max,
            **{name: total / count for name, (total, count) in self.sums.items()},
        }


class LearningLoop:
    """Owns the training side of a run: the learning agent, its counters and the run's files."""

    def __init__(
        self,
        agent: ExaAgent,
        config: LearnerConfig,
        run: RunDirectory,
        progress: Progress,
        clock: Clock,
        signals: StopSignals,
        resumed: Checkpoint | None = None,
    ) -> None:
        self.agent = agent
        self.counters = Counters()
        self.window = Window(config.reward_window)
        self.reason: str | None = None
        self._config = config
        self._run = run
        self._progress = progress
        self._clock = clock
        self._signals = signals
        self._since = SinceRow()
        self._actor_seconds = np.zeros(len(ACTOR_PHASES))
        rows = self._restore(resumed) if resumed else 0
        self._metrics = MetricsLog(run, agent.metrics, kept=rows)
        self._started = self._last_row = self._last_checkpoint = time.monotonic()
        self._first_steps, self._first_updates = self.counters.steps, self.counters.updates
        self._at_row = (self.counters.steps, self.counters.updates)
        self.reason = self._stop_reason()

    # -- what workflows call ----------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        return self.reason is not None

    def weights(self) -> tuple[np.ndarray, int]:
        """The newest weights and their version."""
        return self.agent.get_weights(), self.counters.version

    def absorb(self, block: Block) -> None:
        """Train on a block, count it, report it, and decide whether the run is over."""
        counters = self.counters
        with self._clock.phase("learn"):
            metrics = dict(self.agent.train(block))
        updates = int(metrics.pop("updates", 0))
        self._since.add(metrics, counters.version - block.version)
        counters.iteration += 1
        counters.version += 1
        counters.steps += block.steps
        counters.updates += updates
        counters.episodes += len(block.episode_returns)
        counters.restarts += block.restarts
        self.window.add(block)
        self._actor_seconds += block.seconds
        if self.window.full and len(block.episode_returns):
            reward = mean(self.window.returns)
            counters.best_reward = max(reward, counters.best_reward or -math.inf)
        self.reason = self._stop_reason()
        if row_due(counters.iteration) or self.finished:
            self._write_row()

    def checkpoint_due(self) -> bool:
        """Whether it is time for a checkpoint; never twice at the same place."""
        waited = time.monotonic() - self._last_checkpoint
        return self.finished or waited >= self._config.checkpoint_interval

    def checkpoint(self, envs: Arrays) -> None:
        """Write everything needed to continue from here, environments included."""
        with self._clock.phase("checkpoint"):
            self._metrics.flush()
            arrays, numbers = self.agent.state()
            state = {
                "counters": {**dataclasses.asdict(self.counters), "seconds": self.seconds},
                "window": [list(self.window.returns), list(self.window.lengths)],
                "since": [self._since.sums, self._since.lags],
                "rows": self._metrics.rows,
                "agent": numbers,
            }
            checkpoint = Checkpoint({"agent": arrays, "envs": envs}, state)
            path = save_checkpoint(
                self._run.checkpoints,
                self.counters.steps,
                checkpoint,
                self._config.keep_checkpoints,
            )
        self._last_checkpoint = time.monotonic()
        log.info("checkpoint %s", path)

    def close(self) -> dict[str, Any]:
        """Close the files and write the summary, which is returned."""
        self._metrics.close()
        summary = self._summary()
        write_json(self._run.summary, summary)
        return summary

    # -- inside -----------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Seconds this run has trained, over all its parts."""
        return self.counters.seconds + time.monotonic() - self._started

    def _stop_reason(self) -> str | None:
        config, counters = self._config, self.counters
        if self._signals.received is not None:
            return name_of(self._signals.received)
        if config.total_steps is not None and counters.steps >= config.total_steps:
            return "total_steps"
        if config.n_episodes is not None and counters.episodes >= config.n_episodes:
            return "n_episodes"
        if config.wall_time is not None and self.seconds >= config.wall_time:
            return "wall_time"
        goal = config.target_reward
        if goal is not None and self.window.full and mean(self.window.returns) >= goal:
            return "target_reward"
        return None

    def _write_row(self) -> None:
        with self._clock.phase("report"):
            now, counters, returns = time.monotonic(), self.counters, self.window.returns
            span = max(now - self._last_row, 1e-9)
            steps, updates = self._at_row
            row = {
                "training_iteration": counters.iteration,
                "timesteps_total": counters.steps,
                "episodes_total": counters.episodes,
                "episode_reward_mean": mean(returns),
                "episode_reward_min": min(returns, default=math.nan),
                "episode_reward_max": max(returns, default=math.nan),
                "episode_len_mean": mean(self.window.lengths),
                "updates_total": counters.updates,
                "env_restarts": counters.restarts,
                "time_total_s": round(self.seconds, 4),
                "steps_per_s": round((counters.steps - steps) / span, 1),
                "updates_per_s": round((counters.updates - updates) / span, 1),
                **self._since.columns(),
            }
            self._last_row, self._at_row = now, (counters.steps, counters.updates)
            self._since = SinceRow()
            self._metrics.write(row)
            self._progress.update(row | self._time_split(self._clock.elapsed))

    def _time_split(self, whole: float) -> dict[str, float]:
        parts = fractions(self._clock.seconds, whole)
        return {f"time/{name}": round(part, 4) for name, part in parts.items()}

    def _summary(self) -> dict[str, Any]:
        counters, ran = self.counters, time.monotonic() - self._started
        actors = self._actor_seconds / max(self._actor_seconds.sum(), 1e-9)
        return {
            "reason": self.reason,
            "timesteps_total": counters.steps,
            "episodes_total": counters.episodes,
            "updates_total": counters.updates,
            "training_iteration": counters.iteration,
            "wall_s": round(self.seconds, 3),
            "steps_per_s": round((counters.steps - self._first_steps) / ran, 1),
            "updates_per_s": round((counters.updates - self._first_updates) / ran, 1),
            "best_reward_mean": counters.best_reward,
            "last_reward_mean": mean(self.window.returns) if self.window.returns else None,
            "env_restarts": counters.restarts,
            "time_split": {
                "learner": {n: round(v, 4) for n, v in
                            fractions(self._clock.seconds, self._clock.elapsed).items()},
                "actors": dict(zip(ACTOR_PHASES, np.round(actors, 4).tolist(), strict=True)),
            },
        }  # fmt: skip

    def _restore(self, checkpoint: Checkpoint) -> int:
        """Take over a checkpoint; how many rows had been written by then."""
        numbers = checkpoint.numbers
        self.counters = Counters(**numbers["counters"])
        self.window.returns.extend(numbers["window"][0])
        self.window.lengths.extend(numbers["window"][1])
        self._since.sums, self._since.lags = numbers["since"]
        self.agent.restore(checkpoint.arrays["agent"], numbers["agent"])
        return int(numbers["rows"])
