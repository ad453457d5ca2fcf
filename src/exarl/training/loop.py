"""The learning loop: trains on blocks, counts, writes metrics and checkpoints, decides when to stop."""

from __future__ import annotations

import dataclasses
import logging
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from exarl.acting.evaluation import Evaluation, Evaluator
from exarl.agents.base import ExaAgent
from exarl.config import LearnerConfig
from exarl.display.compiling import Compiling
from exarl.display.progress import Progress
from exarl.records.checkpoint import Checkpoint, fitting, made_for, save_checkpoint
from exarl.records.clock import Clock
from exarl.records.directory import RunDirectory, writing
from exarl.records.ending import write_summary
from exarl.records.lock import check_part, part_of
from exarl.records.metrics import MetricsLog, mean, row_due
from exarl.records.notes import note_end
from exarl.records.signals import StopSignals, name_of
from exarl.records.sinks import open_sinks
from exarl.records.state import DIVERGENCE
from exarl.records.stops import CORE_HOURS, REWARD, first_met
from exarl.training.actors import Tally
from exarl.training.advice import Situation, time_split
from exarl.training.callbacks import CALLBACK, Callbacks, RunProgress
from exarl.training.core_hours import CoreHours
from exarl.training.counters import Counters, stored_counters
from exarl.training.divergence import Watch
from exarl.training.metrics_rows import RewardWindow, RowWriter, SinceRow
from exarl.training.recording import EpisodeRecording
from exarl.training.rounds import Report
from exarl.types import ACTOR_PHASES, Arrays, Block, Metrics

log = logging.getLogger(__name__)


class LearningLoop:
    """Owns the training side of a run: the learning agent, its counters and the run's files.

    Of several learners (``in_team``) only the first has ``run``: it reports for all and decides when
    to stop. Every ``check_every`` iterations their weights are compared.
    ``model`` are the parameters of the agent's network, for its checkpoints.
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
        in_team: bool = False,
        check_every: int = 0,
        evaluator: Evaluator | None = None,
        situation: Situation | None = None,
        model: Mapping[str, object] | None = None,
        callbacks: Callbacks = Callbacks(),  # noqa: B008 - frozen
        recording: EpisodeRecording | None = None,
    ) -> None:
        self.agent = agent
        self.compiling = Compiling(clock, progress)
        agent.report_compiling(self.compiling)
        self.counters = Counters()
        self.watch = Watch(config.on_divergence, self._now, progress.note)
        self.window = RewardWindow(config.reward_window)
        self.reason: str | None = None
        self._config, self._model = config, model or {}
        self._run = run
        self._part = part_of(run) if run else None
        self._recording = recording or EpisodeRecording(None, clock)
        self._progress, self._clock, self._signals = progress, clock, signals
        self.note = progress.note  # shows a line beside the progress
        self._tally: Tally | None = None
        self._actor_seconds = np.zeros(len(ACTOR_PHASES))
        since = SinceRow(self.watch.losses)
        with fitting(run, resumed, lambda: agent.state()[0]):
            rows = self._restore(resumed, since) if resumed else 0
        self._cost = CoreHours(config, self.counters, clock)
        online, project = config.log_online, config.log_project
        sinks = open_sinks(config.log_to, run, online=online, project=project) if run else []
        self._metrics = MetricsLog(run, agent.metrics, rows, sinks) if run else None
        self._rows = RowWriter(run, self._metrics, progress, clock, since, self.counters)
        self._in_team = in_team
        self._check_every = check_every
        self._evaluator = evaluator
        self.last_evaluation: Evaluation | None = None  # of this part of the run
        self._situation = situation or Situation()
        self._callbacks = callbacks
        self._told: set[str] = set()  # the schedules whose end the user knows
        self._started = self._last_checkpoint = time.monotonic()
        self._first = dataclasses.replace(self.counters)
        self.reason = self._stop_reason()

    # -- what workflows call ----------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether the run is to stop, for whatever ``reason``."""
        return self.reason is not None

    def weights(self) -> tuple[np.ndarray, int]:
        """The newest weights and their version."""
        weights, version = self.weights_later()
        return weights(), version

    def weights_later(self) -> tuple[Callable[[], np.ndarray], int]:
        """A function that returns the newest weights, and their version; the caller may do something
        else while a device still computes them."""
        later, version = self.agent.weights_later(), self.counters.version

        def read() -> np.ndarray:
            with self._clock.phase("learn"):
                weights = later()
            if version == self.counters.version:  # the metrics of the same update are there as well
                self._rows.finish()
            return self._checked(weights)

        return read, version

    def checksum(self) -> int | None:
        """The checksum of the weights, when it is time to compare learners; else None."""
        if not self._check_every or self.counters.iteration % self._check_every:
            return None
        return zlib.crc32(self.agent.get_weights().tobytes())

    def train(self, block: Block | None, report: Report | None = None) -> None:
        """Train on a block, count it, write a row when one is due, and decide whether to stop.

        On a device, training may still go on when this returns; that of the block before has ended.
        Several learners call it together, each with its own block or none, and one report; one alone
        also with joined blocks and theirs. Without both it does nothing: the run was stopped before.
        """
        if block is None and report is None:
            return
        with self._clock.phase("learn"):
            report = report or Report.of(block, self.counters.version)
            if self._in_team:
                metrics = self.agent.train_in_team(block, report.steps)
            else:
                assert block is not None
                one, agent = report.blocks == 1, self.agent
                metrics = agent.train(block) if one else agent.train_together(block)
        self._recording.add(block)
        self.count(report, dict(metrics))

    def count(self, report: Report, metrics: Metrics) -> None:
        """Count what was trained, write a row when one is due, and decide whether to stop."""
        counters = self.counters
        updates = int(metrics.pop("updates", 0))
        self._rows.finish()
        self._rows.add(metrics, report.lags, learnt=updates > 0)
        if updates:
            self._tell_schedules()
        counters.add(report, updates)
        self.window.add(report.returns, report.lengths, report.info)
        self._actor_seconds += report.seconds or 0.0
        self._cost.add(report)
        if self._run is None:
            return
        if self.window.full and report.returns:
            reward, best = mean(self.window.returns), counters.best_reward
            counters.best_reward = reward if best is None else max(reward, best)
        self.reason = self._stop_reason()
        if self._callbacks:
            ended = zip(report.returns, report.lengths, strict=True)
            if self._callbacks.after_block(self._progress_now(), ended):
                self.reason = self.reason or CALLBACK
        if row_due(counters.iteration):
            self._rows.begin(counters, self.window, self.seconds, self._cost.columns())
            if all(isinstance(value, float | int) for value in metrics.values()):
                self._rows.finish()
        if self._evaluator is not None:
            self._evaluator.offer(counters.place, lambda: self._checked(self.agent.get_weights()))
            self._store(self._evaluator.result())

    def resize_window(self, size: int) -> None:
        """Take means over the last ``size`` episodes from now on."""
        window = RewardWindow(size)
        window.add(*self.window.state())
        self.window = window

    def diverged(self, what: str) -> None:
        """Note that ``what`` is not finite; ``on_divergence`` decides what follows."""
        self.watch.notice(what)
        self.reason = self.reason or self._stop_reason()

    def checkpoint_due(self) -> bool:
        """Whether it is time for a checkpoint; never twice at the same place."""
        waited = time.monotonic() - self._last_checkpoint
        return self.finished or waited >= self._config.checkpoint_interval

    def should_stop(self) -> bool:
        """Whether to stop although no block has come: after a signal, or when ``wall_time`` is over."""
        self.reason = self.reason or self._stop_reason()
        return self.finished

    @property
    def interrupted(self) -> bool:
        """Whether the run stops because of a signal, whose sender waits for its end."""
        return self._signals.received is not None

    def draft(self) -> Checkpoint:
        """The learner's part of a checkpoint as of now. Training may go on while the environments'
        part is collected."""
        with self._clock.phase("checkpoint"):
            self._last_checkpoint = time.monotonic()
            self._rows.finish()
            since = self._rows.state()
            if self._metrics is not None and self._run is not None:
                with writing(self._run.path):
                    self._metrics.flush()
            arrays, numbers = self.agent.state()
            state = {
                "made_for": made_for(self._config, self._model, self.agent.spec),
                "counters": self.counters.state(self.seconds, self._cost.learner_core_s),
                "window": self.window.state(),
                "since": since,
                "rows": self._metrics.rows if self._metrics is not None else 0,
                "agent": numbers,
            }
            groups = {"agent": {n: np.array(a) for n, a in arrays.items()}}
            self._recording.draft(groups, state)
            return Checkpoint(groups, state)

    def write(self, draft: Checkpoint, envs: Arrays, pending: Arrays | None = None) -> None:
        """Complete a draft with the environments and the blocks under way, and write it.

        A draft made after a divergence is not written, so that the newest checkpoint is a good one.
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
                    stored_counters(draft.numbers["counters"]).place,
                    Checkpoint(arrays, draft.numbers),
                    self._config.keep_checkpoints,
                )
        self._recording.checkpointed()
        log.info("checkpoint %s", path)

    def checkpoint(self, envs: Arrays, pending: Arrays | None = None) -> None:
        """Write everything needed to continue from here, environments included."""
        self.write(self.draft(), envs, pending)

    def close(self, tally: Tally | None = None) -> dict[str, Any]:
        """Close the files and write the summary, which is returned; ``tally``: what became of the
        blocks."""
        assert self._metrics is not None and self._run is not None
        self._tally = tally
        self._rows.finish()
        self._evaluate_last()
        if self.watch.stops:
            self.reason = DIVERGENCE  # whatever else would have ended it
        check_part(self._run, self._part)
        with writing(self._run.path):
            self._metrics.close()
            self._recording.close()
            summary = write_summary(self._run, self.summary() | self.watch.verdict(self._run))
        note_end(summary["reason"])
        return summary

    def _evaluate_last(self) -> None:
        """Wait for a running evaluation, then evaluate the last weights, unless a signal ends the run
        or they are not finite."""
        evaluator, steps = self._evaluator, self.counters.place
        if evaluator is None:
            return
        self._store(evaluator.result(wait=not self.interrupted))
        done = self.last_evaluation is not None and self.last_evaluation.steps == steps
        if done or steps == self._first.place or self.interrupted or self.watch.stops:
            return
        evaluator.offer(steps, self.agent.get_weights, at_once=True)
        while not self.interrupted and evaluator.running:
            evaluator.wait(0.1)  # so that a signal is noticed
        self._store(evaluator.result())

    def abandon(self) -> None:
        """Close the files and the evaluation, whether or not the run has ended well."""
        if self._evaluator is not None:
            self._evaluator.close()
        if self._metrics is not None:
            self._metrics.abandon()

    def _store(self, evaluation: Evaluation | None) -> None:
        """Write an evaluation, and its weights if none before was better."""
        if evaluation is None or not evaluation.rewards:
            return
        assert self._run is not None and self._metrics is not None
        self.last_evaluation = evaluation
        if self._callbacks.on_evaluation is not None:
            self._callbacks.on_evaluation(evaluation)
        counters, reward = self.counters, evaluation.reward_mean
        better = counters.best_evaluation is None or reward >= counters.best_evaluation
        if better:
            counters.best_evaluation = reward
        with writing(self._run.path), self._clock.phase("report"):
            self._metrics.evaluated(evaluation.steps, *evaluation.by_episode)
            if better:
                arrays = {"agent": {"weights": evaluation.weights}}
                numbers = {"counters": {"steps": evaluation.steps}, "reward_mean": reward}
                numbers["made_for"] = made_for(self._config, self._model, self.agent.spec)
                save_checkpoint(
                    self._run.best, evaluation.steps, Checkpoint(arrays, numbers), keep=1
                )
        self._progress.note(
            f"evaluation at step {evaluation.steps:,}: reward {reward:.2f}" + " (best)" * better
        )

    # -- inside -----------------------------------------------------------------------------------

    def _tell_schedules(self) -> None:
        """Say so if a block was trained beyond the end of a schedule; the counters are before it."""
        ended = self.agent.ended_schedules(self.counters.steps, self.counters.updates)
        for name in ended.keys() - self._told:
            self._told.add(name)
            if self._run is not None:
                self._progress.note(ended[name])

    def _progress_now(self) -> RunProgress:
        counters, returns = self.counters, self.window.returns
        numbers = counters.steps, counters.episodes, counters.updates, counters.iteration
        return RunProgress(*numbers, self.seconds, mean(returns) if returns else None)

    def _now(self) -> tuple[int, int]:
        return self.counters.iteration, self.counters.steps

    def _checked(self, weights: np.ndarray) -> np.ndarray:
        """Weights to act with; where the run stops because of a divergence, the last finite ones."""
        weights = self.watch.weights(weights)
        if self.watch.stops:
            self.reason = self.reason or self._stop_reason()
        return weights

    @property
    def seconds(self) -> float:
        """Seconds this run has trained, over all its parts."""
        return self.counters.seconds + time.monotonic() - self._started

    def _stop_reason(self) -> str | None:
        if self._run is None:
            return None  # the first learner decides for all
        if self.watch.stops:
            return DIVERGENCE
        if self._signals.received is not None:
            return name_of(self._signals.received)
        return first_met(self._config, self._reached) or self.window.met(self._config.stop_when)

    def _reached(self, column: str) -> float | None:
        """The present value of a column; of the reward when the window is full."""
        if column == REWARD:
            return mean(self.window.returns) if self.window.full else None
        if column == CORE_HOURS:
            return self._cost.columns()[column]
        return self.seconds if column == "time_total_s" else self.counters.column(column)

    def summary(self) -> dict[str, Any]:
        """The summary of the run so far."""
        counters, ran = self.counters, time.monotonic() - self._started
        updates = counters.updates - self._first.updates
        return {
            "reason": self.reason,
            "wall_s": round(self.seconds, 3),
            "steps_per_s": round((counters.steps - self._first.steps) / ran, 1),
            "updates_per_s": round(updates / ran, 1),
            "last_evaluation": self.last_evaluation and self.last_evaluation.reward_mean,
            "last_reward_mean": mean(self.window.returns) if self.window.returns else None,
            **counters.summary(),
            **self._cost.columns(),
            "blocks": {"trained": counters.blocks, **(self._tally.blocks() if self._tally else {})},
            **time_split(
                self._situation, self._clock, self._actor_seconds, updates, self.agent.get_weights
            ),
        }

    def _restore(self, checkpoint: Checkpoint, since: SinceRow) -> int:
        """Take over a checkpoint; the number of rows that had been written by then."""
        numbers = checkpoint.numbers
        self.counters = stored_counters(numbers["counters"])
        self.window.restore(numbers["window"])
        since.restore(numbers["since"])
        self.agent.restore(checkpoint.arrays["agent"], numbers["agent"])
        self._recording.restore(checkpoint)
        return int(numbers["rows"])
