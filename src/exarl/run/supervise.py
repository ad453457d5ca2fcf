"""Supervising learners on a Ray cluster: showing their progress, stopping them, starting them again."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

from exarl.comm.cluster import Cluster, Needs, Remote, cause, gone, resources, why
from exarl.comm.layout import Layout
from exarl.config import Configuration
from exarl.display.progress import Progress
from exarl.errors import ConfigError, ExarlError, Stopped
from exarl.records.directory import RunDirectory
from exarl.records.ending import write_failure
from exarl.records.lock import RunLock
from exarl.records.scratch import sign, sweep
from exarl.records.signals import StopSignals
from exarl.run.build import build_workflow
from exarl.run.play import RunResult
from exarl.run.process import open_progress, terminal_progress
from exarl.run.ray_processes import LearnerHost, Orders
from exarl.training.divergence import rolls_back

POLL_S = 0.2


def supervise(
    configuration: Configuration, layout: Layout, run: RunDirectory, show: bool
) -> RunResult:
    """Run learners and actors on a cluster, show their progress, and pass stop signals on.

    Learners that are lost with their machine go on from the last checkpoint.
    """
    config: Any = build_workflow(configuration).config
    actors = Needs(config.actor_cpus, config.actor_gpus)
    wanted = layout.learners * config.learner_cpus + (config.n_actors or 0) * actors.cpus
    cpus = max(len(os.sched_getaffinity(0)), math.ceil(wanted))
    plain = json.dumps(configuration.to_json())
    orders = Orders(plain, layout, str(run.path.absolute()), str(Path.cwd()))
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(RunLock(run))
        stack.push(partial(_record, run, lock.part))
        terminal = partial(terminal_progress, configuration.learner)
        progress = open_progress(terminal if show else None, stack)
        # Ray writes at length to standard output what is reported here in one line.
        nowhere = stack.enter_context(open(os.devnull, "w"))
        stack.enter_context(contextlib.redirect_stdout(nowhere))
        signals = stack.enter_context(StopSignals())
        sweep(Path("/tmp"))
        cluster = stack.enter_context(Cluster(config.address, cpus))
        if cluster.folder is not None:
            sign(cluster.folder)
        gpus = config.learner_gpus
        if gpus is None:
            gpus = float(resources().get("GPU", 0) >= layout.learners)
        needs = Needs(config.learner_cpus, gpus)
        left = config.learner_restarts
        while True:
            hosts = [
                Remote(LearnerHost, needs, orders, rank, needs, actors)
                for rank in range(layout.learners)
            ]
            try:
                ended = attend(hosts, progress, signals)
                again = rolls_back(configuration.learner, ended["summary"], orders.rollbacks)
                if not again or signals.received is not None:
                    return RunResult(run.path, ended["reason"], ended["summary"])
                orders = dataclasses.replace(orders, rollbacks=orders.rollbacks + 1)
            except ExarlError as error:
                if signals.received is not None and not run.exists():
                    raise Stopped(signals.received) from error
                if not isinstance(error, LearnerLost) or not left or not run.exists():
                    raise
                left -= 1
                progress.note(f"{error}; continuing from the last checkpoint")
            finally:
                for host in hosts:
                    host.kill()


def _record(run: RunDirectory, part: str, _: Any, error: BaseException | None, *__: Any) -> None:
    """Write a failure that the learners have not recorded themselves."""
    if error is not None:
        write_failure(run, error, part=part)


class LearnerLost(ExarlError):
    """The process of a learner is gone."""


def attend(hosts: list[Remote], progress: Progress, signals: StopSignals) -> dict[str, Any]:
    """Start the learners and watch them until the run ends; the outcome of the first learner."""
    passed_on, busy = False, ""
    begun = [host.call("begin", [other.handle for other in hosts]) for host in hosts]
    try:
        for future in begun:
            future.result()
        while True:
            for host in reversed(hosts):  # the first is last: it ends when all have ended
                news = host.call("news", now=True).result()
                for note in news["notes"]:
                    progress.note(note)
                if (outcome := news["outcome"]) and "error" in outcome:
                    raise failed(outcome)
            if news["busy"] != busy:
                progress.busy(busy := news["busy"])
            if news["row"] is not None:
                progress.update(news["row"])
            if outcome is not None:
                return dict(outcome)
            if signals.received is not None and not passed_on:
                passed_on = True
                for host in hosts:
                    host.call("stop", signals.received, now=True)
            time.sleep(POLL_S)
    except ExarlError:
        raise
    except Exception as error:
        if isinstance(raised := cause(error), ExarlError):
            raise raised from None
        kind = LearnerLost if gone(error) else ExarlError
        raise kind(f"a learner was lost: {why(error)}") from error


def failed(outcome: dict[str, Any]) -> ExarlError:
    """The error that a learner has reported, to be raised here."""
    if outcome["code"] == ConfigError.exit_code:
        return ConfigError(outcome["error"])
    return ExarlError(outcome["error"])
