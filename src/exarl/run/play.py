"""One process's part of a run, from its environments to its last file."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from exarl.comm.waiting import wait_for
from exarl.display.closing import closing_html
from exarl.display.curve import draw_curve
from exarl.display.progress import Progress
from exarl.envs import group
from exarl.records.directory import RunDirectory, reason
from exarl.records.ending import write_failure
from exarl.records.logs import RankLog
from exarl.records.metrics import finite, read_rows, read_table
from exarl.records.profile import profiled
from exarl.records.trace import merge
from exarl.run.build import build_agent
from exarl.run.prior import load_prior
from exarl.run.process import (
    Environments,
    build_actor,
    build_environments,
    build_learner,
    build_process,
    generate,
    open_progress,
)
from exarl.run.start import load_stored, open_log, open_or_create
from exarl.run.task import Peers, ProcessTask
from exarl.training.before import clone, learn_offline
from exarl.training.process import Actor, Learner, RunOutcome

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """How a run ended and where it is."""

    run_dir: Path
    reason: str
    summary: Mapping[str, Any]

    @cached_property
    def curve(self) -> dict[str, np.ndarray]:
        """The rows of progress.csv as one array for each column; NaN where a row has no number."""
        rows = read_rows(RunDirectory(self.run_dir).result)
        names = dict.fromkeys(name for row in rows for name in row)
        return {
            name: np.array([np.nan if (n := finite(row, name)) is None else n for row in rows])
            for name in names
        }

    @cached_property
    def evaluations(self) -> dict[str, np.ndarray]:
        """The rows of evaluations.csv, likewise; empty without ``eval_interval``."""
        rows = read_table(RunDirectory(self.run_dir).evaluations)
        return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())}

    def _repr_html_(self) -> str:
        """The summary and the learning curve, for a notebook."""
        return closing_html(self.summary, self.run_dir, RunDirectory(self.run_dir).curve)


@dataclass(frozen=True)
class Ended:
    """How a process's part ended; ``result`` is that of the run, on the first learner."""

    result: RunResult | None = None
    outcome: RunOutcome = RunOutcome()


def play(
    task: ProcessTask,
    peers: Peers,
    stack: contextlib.ExitStack,
    show: Callable[[], Progress] | None = None,
) -> Ended:
    """Play a process's part of a run to its end; ``stack`` closes what it opens.

    ``show`` makes the display of a learner's progress; without, nothing is shown. What raises is
    recorded in the process's log and, where the task says so, in the run's summary.
    """
    role, clock = task.role, task.clock
    environments: Environments | None = None
    rank_log: RankLog | None = None
    learner: Learner | None = None
    try:
        if role.group is not None:
            environments = build_environments(task, peers, stack)
        if environments is not None and role.member:
            peers.share(None)
            rank_log = open_log(task, stack)
            serve(task, environments)
            return Ended()
        process = build_process(task, peers, environments)
        task.workflow.ready(process)
        library = peers.library
        prior = load_prior(task.configuration, process.agent.spec) if role.learns else None
        newest = None if role.rank else open_or_create(task, process.agent.spec, library)
        path = peers.share(str(newest) if newest is not None else None)
        rank_log = open_log(task, stack)
        stored = None
        if role.learns and path is not None:
            stored = load_stored(task, process.agent.spec, process.codec, Path(path))
        states = peers.hand_out(stored.states if stored is not None else {})
        actor = None
        if role.acts and environments is not None:
            actor = build_actor(
                process, environments, states, fresh=path is None and not task.config.prior_data
            )
        if role.learns:
            with clock.phase("start"):
                progress = open_progress(show, stack)
                learner = build_learner(task, process, peers, stored, actor, progress, stack, prior)
        profile = task.run.rank_file("profile", role.rank, "prof")
        part = learner or actor
        assert part is not None
        with profiled(profile if task.config.profile == "cprofile" else None):
            outcome = run_part(task, part)
        peers.dismiss()
        write_trace(task)
        if learner is None or role.rank:
            return Ended(None, outcome)
        return Ended(finish(task, learner, progress, outcome), outcome)
    except BaseException as error:
        record_failure(task, error, rank_log, learner)
        raise


def run_part(task: ProcessTask, part: Actor | Learner) -> RunOutcome:
    """What the workflow does; before it, or in its place, what is learned from prior data."""
    if isinstance(part, Learner):
        clone(part)
        if part.config.offline:
            learn_offline(part)
            return RunOutcome()
    return task.workflow.run(part) or RunOutcome()


def serve(task: ProcessTask, environments: Environments) -> None:
    """The part of a member of an environment group: take part in the calls that its actor makes."""
    assert environments.shared is not None
    agent = build_agent(task.configuration, environments.adapter.spec)
    compute = partial(generate, agent)
    group.serve(environments.envs, environments.shared, compute, task.clock.moved)
    write_trace(task)


def finish(
    task: ProcessTask, learner: Learner, progress: Progress, outcome: RunOutcome
) -> RunResult:
    """Write the end of the run, on the first learner."""
    config, run = task.config, task.run
    summary = learner.loop.close(outcome.tally)
    progress.close()
    if config.profile == "trace":
        join_traces(run, None if task.workflow.hosted else task.layout.world)
    result = RunResult(run.path, str(summary["reason"]), summary)
    try:
        rows = read_rows(run.result)
    except OSError as error:  # the run itself is whole
        log.warning("no learning curve: cannot read %s: %s", run.result, reason(error))
        return result
    title = f"{config.agent} on {config.env} ({config.workflow}, seed {config.seed})"
    evaluations = read_table(run.evaluations)
    draw_curve(rows, run.curve, title, config.target_reward, evaluations, config.curve_x)
    return result


def record_failure(
    task: ProcessTask, error: BaseException, rank_log: RankLog | None, learner: Learner | None
) -> None:
    """Write the cause to this process's log and, once the run is ours, to its summary."""
    if rank_log is not None:
        rank_log.failed(error)
    if task.part is None:
        return
    known = None
    if learner is not None and not task.role.rank:
        with contextlib.suppress(Exception):  # the run is broken already
            known = learner.loop.summary()
    write_failure(
        task.run,
        error,
        known,
        part=task.part,
        rank=task.role.rank,
        signum=task.signals.received,
    )


def write_trace(task: ProcessTask) -> None:
    """Write this process's trace, if one is kept."""
    if task.config.profile == "trace":
        task.clock.tracer.write(task.run.rank_file("trace", task.role.rank, "json"))


def join_traces(run: RunDirectory, ranks: int | None) -> None:
    """Merge the traces of all ``ranks``, waiting until they are written; None: those that exist."""
    if ranks is None:
        parts = sorted(run.logs.glob("trace_*.json"))
    else:
        parts = [run.rank_file("trace", rank, "json") for rank in range(ranks)]
    wait_for(lambda: True if all(part.exists() for part in parts) else None)
    merge(parts, run.trace)
    for part in parts:
        part.unlink()
