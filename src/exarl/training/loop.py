"""The one learning loop: takes blocks, trains, counts, reports, keeps, and knows when to stop."""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from exarl.acting.evaluation import Evaluation, Evaluator
from exarl.agents.base import ExaAgent
from exarl.config import LearnerConfig
from exarl.display.compiling import Compiling
from exarl.display.progress import Progress
from exarl.records.checkpoint import Checkpoint, fitting, save_checkpoint
from exarl.records.clock import Clock, fractions
from exarl.records.directory import RunDirectory, writing
from exarl.records.ending import write_summary
from exarl.records.lock import check_part, part_of
from exarl.records.metrics import MetricsLog, mean, row_due
from exarl.records.notes import note_end
from exarl.records.signals import StopSignals, name_of
from exarl.records.sinks import open_sinks
from exarl.records.state import DIVERGENCE
from exarl.training.advice import Situation, bound_by
from exarl.training.counters import Counters, stored_counters
from exarl.training.divergence import Watch
from exarl.training.recent import SinceRow, Window
from exarl.training.rounds import Report
from exarl.training.stops import first_met
from exarl.types import ACTOR_PHASES, Arrays, Block

log = logging.getLogger(__name__)


class LearningLoop:
    """Owns the training side of a run: the learning agent, its counters and the run's files.

    Of several learners only the first has ``run``: it reports for all and decides when to stop.
    """

    def __init__(
        self,
        agent: ExaAgent,
        config: LearnerConfig,
        run: RunDirectory | None,
        progress: Progress,
        clock: Clock,
        signals: StopSignals,
        resumed: Checkpoint | None = None,
        *,
        check_every: int = 0,
        evaluator: Evaluator | None = None,
        situation: Situation | None = None,
    ) -> None:
        self.agent = agent
        agent.compiling = self.compiling = Compiling(clock, progress)
        self.counters = Counters()
        self.watch = Watch(config.on_divergence, self._now, progress.note)
        self.window = Window(config.reward_window)
        self.reason: str | None = None
        self._config = config
        self._run = run
        self._part = part_of(run) if run else None
        self._progress, self._clock, self._signals = progress, clock, signals
        self._since = SinceRow(self.watch.losses)
        self._row: tuple[dict[str, Any], SinceRow] | None = None  # drawn up, not yet written
        self._blocks: dict[str, int] = {}
        self._actor_seconds = np.zeros(len(ACTOR_PHASES))
        with fitting(run):
            rows = self._restore(resumed) if resumed else 0
        online, project = config.log_online, config.log_project
        sinks = open_sinks(config.log_to, run, online=online, project=project) if run else []
        self._metrics = MetricsLog(run, agent.metrics, rows, sinks) if run else None
        self._check_every = check_every
        self._evaluator = evaluator
        self._situation = situation or Situation()
        self._started = self._last_row = self._last_checkpoint = time.monotonic()
        self._first_steps, self._first_updates = self.counters.steps, self.counters.updates
        self._at_row, self._compiled = (self.counters.steps, self.counters.updates), 0.0
        self.reason = self._stop_reason()

    # -- what workflows call ----------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        return self.reason is not None

    def weights(self) -> tuple[np.ndarray, int]:
        """The newest weights and their version."""
        weights, version = self.weights_later()
        return weights(), version

    def weights_later(self) -> tuple[Callable[[], np.ndarray], int]:
        """The same for whoever has something to do while a device still computes them."""
        later, version = self.agent.weights_later(), self.counters.version

        def taken() -> np.ndarray:
            with self._clock.phase("learn"):
                weights = later()
            if version == self.counters.version:  # what the device found is here as well
                self._finish_row()
            return self._checked(weights)

        return taken, version

    def checksum(self) -> int | None:
        """Of the weights, when it is time to compare learners."""
        if not self._check_every or self.counters.iteration % self._check_every:
            return None
        return zlib.crc32(self.agent.get_weights().tobytes())

    def absorb(self, block: Block | None, report: Report | None = None) -> None:
        """Train on a block, count it, report it, and decide whether the run is over.

        On a device the training may go on when this returns; that of the block before has ended.
        Several learners call it together, each with its own block or none, and one common report.
        Nothing happens without either: a stop came before the block was whole.
        """
        if block is None and report is None:
            return
        with self._clock.phase("learn"):
            if report is None or self.agent.learns_in_team is False:
                assert block is not None
                report = Report.of(block, self.counters.version)
                metrics = dict(self.agent.train(block))
            else:
                metrics = dict(self.agent.train(block, report.steps))  # type: ignore[call-arg,arg-type]
        self.count(report, metrics)

    def count(self, report: Report, metrics: dict[str, float]) -> None:
        """Count what was trained, report it, and decide whether the run is over."""
        counters = self.counters
        updates = int(metrics.pop("updates", 0))
        self._finish_row()
        with self._clock.phase("learn"):
            self._since.add(metrics, report.lags, learnt=updates > 0)
        counters.iteration += 1
        counters.blocks += report.blocks
        counters.version += 1
        counters.steps += report.steps
        counters.updates += updates
        counters.episodes += len(report.returns) + report.unlisted
        counters.restarts += report.restarts
        counters.failed(report.failures)
        self.window.add(report)
        self._actor_seconds += report.seconds or 0.0
        if self._run is None:
            return
        if self.window.full and report.returns:
            reward, best = mean(self.window.returns), counters.best_reward
            counters.best_reward = reward if best is None else max(reward, best)
        self.reason = self._stop_reason()
        if row_due(counters.iteration):
            self._begin_row()
            if all(isinstance(value, float | int) for value in metrics.values()):
                self._finish_row()
        if self._evaluator is not None:
            self._evaluator.offer(counters.steps, lambda: self._checked(self.agent.get_weights()))
            self._keep(self._evaluator.result())

    def diverged(self, what: str) -> None:
        """Something of the agent is not finite; ``on_divergence`` says what follows."""
        self.watch.notice(what)
        self.reason = self.reason or self._stop_reason()

    def note(self, text: str) -> None:
        """Show a line beside the progress."""
        self._progress.note(text)

    def checkpoint_due(self) -> bool:
        """Whether it is time for a checkpoint; never twice at the same place."""
        waited = time.monotonic() - self._last_checkpoint
        return self.finished or waited >= self._config.checkpoint_interval

    def should_stop(self) -> bool:
        """Whether to stop although no block has come: a signal, or the time is over."""
        self.reason = self.reason or self._stop_reason()
        return self.finished

    @property
    def interrupted(self) -> bool:
        """Whether a signal is the reason to stop, and somebody waits for us to be gone."""
        return self._signals.received is not None

    def draft(self) -> Checkpoint:
        """The learner's part of a checkpoint as of now; training may go on while it waits for the
        environments' part."""
        with self._clock.phase("checkpoint"):
            self._last_checkpoint = time.monotonic()
            self._finish_row()
            self._since.settle()
            if self._metrics is not None and self._run is not None:
                with writing(self._run.path):
                    self._metrics.flush()
            arrays, numbers = self.agent.state()
            state = {
                "counters": {**dataclasses.asdict(self.counters), "seconds": self.seconds},
                "window": [list(self.window.returns), list(self.window.lengths)],
                "since": copy.deepcopy([self._since.sums, self._since.lags]),
                "rows": self._metrics.rows if self._metrics is not None else 0,
                "agent": numbers,
            }
            return Checkpoint({"agent": {n: np.array(a) for n, a in arrays.items()}}, state)

    def write(self, draft: Checkpoint, envs: Arrays, pending: Arrays | None = None) -> None:
        """Complete a draft with the environments and the blocks under way, and write it.

        One of a run that had diverged by then is not written: the newest checkpoint is a good one.
        """
        assert self._run is not None
        check_part(self._run, self._part)
        if not self.watch.good(draft):
            return
        with self._clock.phase("checkpoint"):
            arrays = {**draft.arrays, "envs": envs, "pending": pending or {}}
            with writing(self._run.path):
                path = save_checkpoint(
                    self._run.checkpoints,
                    int(draft.numbers["counters"]["steps"]),
                    Checkpoint(arrays, draft.numbers),
                    self._config.keep_checkpoints,
                )
        log.info("checkpoint %s", path)

    def checkpoint(self, envs: Arrays, pending: Arrays | None = None) -> None:
        """Write everything needed to continue from here, environments included."""
        self.write(self.draft(), envs, pending)

    def balance(self, **blocks: int) -> None:
        """What became of the blocks, for the summary."""
        self._blocks = blocks

    def close(self) -> dict[str, Any]:
        """Close the files and write the summary, which is returned."""
        assert self._metrics is not None and self._run is not None
        self._finish_row()
        if self._evaluator is not None:
            self._keep(self._evaluator.result(wait=not self.interrupted))
        if self.watch.stops:
            self.reason = DIVERGENCE  # whatever else would have ended it
        check_part(self._run, self._part)
        with writing(self._run.path):
            self._metrics.close()
            told = self.summary() | self.watch.verdict(self._run)
            summary = write_summary(self._run, told)
        note_end(summary["reason"])
        return summary

    def abandon(self) -> None:
        """Let go of the files and the evaluation, at the end of a run of any kind."""
        if self._evaluator is not None:
            self._evaluator.close()
        if self._metrics is not None:
            self._metrics.abandon()

    def _keep(self, evaluation: Evaluation | None) -> None:
        """Write an evaluation down, and the weights when none was better."""
        if evaluation is None or not evaluation.rewards:
            return
        assert self._run is not None and self._metrics is not None
        counters, reward = self.counters, evaluation.reward_mean
        better = counters.best_evaluation is None or reward >= counters.best_evaluation
        if better:
            counters.best_evaluation = reward
        with writing(self._run.path), self._clock.phase("report"):
            self._metrics.evaluated(evaluation.steps, evaluation.rewards, evaluation.lengths)
            if better:
                arrays = {"agent": {"weights": evaluation.weights}}
                numbers = {"counters": {"steps": evaluation.steps}, "reward_mean": reward}
                save_checkpoint(
                    self._run.best, evaluation.steps, Checkpoint(arrays, numbers), keep=1
                )
        self._progress.note(
            f"evaluation at step {evaluation.steps:,}: reward {reward:.2f}" + " (best)" * better
        )

    # -- inside -----------------------------------------------------------------------------------

    def _now(self) -> tuple[int, int]:
        return self.counters.iteration, self.counters.steps

    def _checked(self, weights: np.ndarray) -> np.ndarray:
        """Weights for those that act; where the run is to stop, the last that were finite."""
        weights = self.watch.weights(weights)
        if self.watch.stops:
            self.reason = self.reason or self._stop_reason()
        return weights

    @property
    def seconds(self) -> float:
        """Seconds this run has trained, over all its parts."""
        return self.counters.seconds + time.monotonic() - self._started

    def _stop_reason(self) -> str | None:
        config, counters = self._config, self.counters
        if self._run is None:
            return None  # the first learner decides for all
        if self.watch.stops:
            return DIVERGENCE
        if self._signals.received is not None:
            return name_of(self._signals.received)
        judged = config.target_reward is not None and self.window.full
        reached = {
            "total_steps": counters.steps,
            "n_episodes": counters.episodes,
            "wall_time": self.seconds,
            "target_reward": mean(self.window.returns) if judged else None,
        }
        return first_met(config, reached)

    def _begin_row(self) -> None:
        """Draw up the row of this moment; what a device still computes is added when it is there."""
        with self._clock.phase("report"):
            now, counters, returns = time.monotonic(), self.counters, self.window.returns
            compiled = self._clock.seconds.get("compile", 0.0)  # says nothing of what is to come
            span = max(now - self._last_row - (compiled - self._compiled), 1e-9)
            steps, updates = self._at_row
            row = {
                "training_iteration": counters.iteration,
                "timesteps_total": counters.steps,
                "episodes_total": counters.episodes,
                "episode_reward_mean": mean(returns),
                "episode_reward_min": min(returns, default=math.nan),
                "episode_reward_max": max(returns, default=math.nan),
                "episode_len_mean": mean(self.window.lengths),
                **self.window.quartiles(),
                "updates_total": counters.updates,
                "env_restarts": counters.restarts,
                **{f"env_{kind}": n for kind, n in counters.failures_by_kind().items()},
                "time_total_s": round(self.seconds, 4),
                "steps_per_s": round((counters.steps - steps) / span, 1),
                "updates_per_s": round((counters.updates - updates) / span, 1),
            }
            self._row = row, self._since
            self._last_row, self._at_row = now, (counters.steps, counters.updates)
            self._compiled = compiled
            self._since = SinceRow(self.watch.losses)

    def _finish_row(self) -> None:
        """Write the row that was drawn up last, if it waits."""
        if self._row is None:
            return
        (row, since), self._row = self._row, None
        with self._clock.phase("learn"):
            columns = since.columns()
        assert self._metrics is not None and self._run is not None
        with self._clock.phase("report"):
            parts = fractions(self._clock.seconds, self._clock.elapsed)
            row |= columns | {f"time/{name}": round(part, 4) for name, part in parts.items()}
            with writing(self._run.path):
                self._metrics.write(row)
            self._progress.update(row)

    def summary(self) -> dict[str, Any]:
        """What there is to tell of the run so far."""
        counters, ran = self.counters, time.monotonic() - self._started
        parts = self._actor_seconds / max(self._actor_seconds.sum(), 1e-9)
        actors = dict(zip(ACTOR_PHASES, np.round(parts, 4).tolist(), strict=True))
        learner = fractions(self._clock.seconds, self._clock.elapsed)
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
            "best_evaluation": counters.best_evaluation,
            "rollbacks": counters.rollbacks,
            "last_reward_mean": mean(self.window.returns) if self.window.returns else None,
            "env_restarts": counters.restarts,
            "env_failures": counters.failure_report(),
            "blocks": {"trained": counters.blocks, **self._blocks},
            "time_split": {
                "learner": {name: round(part, 4) for name, part in learner.items()},
                "actors": actors,
            },
            "bound_by": bound_by(self._situation, learner, actors),
        }

    def _restore(self, checkpoint: Checkpoint) -> int:
        """Take over a checkpoint; how many rows had been written by then."""
        numbers = checkpoint.numbers
        self.counters = stored_counters(numbers["counters"])
        self.window.returns.extend(map(float, numbers["window"][0]))
        self.window.lengths.extend(map(int, numbers["window"][1]))
        sums, lags = numbers["since"]
        self._since.sums = {name: [float(total), int(n)] for name, (total, n) in sums.items()}
        self._since.lags = [number + 0 for number in lags]
        self.agent.restore(checkpoint.arrays["agent"], numbers["agent"])
        return int(numbers["rows"])
