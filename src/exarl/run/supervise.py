"""Looking after learners on a Ray cluster: showing how they do, stopping them, starting them again."""

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
from exarl.display.progress import Progress, make_progress
from exarl.errors import ConfigError, ExarlError, Stopped
from exarl.records.directory import RunDirectory
from exarl.records.ending import write_failure
from exarl.records.lock import RunLock
from exarl.records.scratch import sign, sweep
from exarl.records.signals import StopSignals
from exarl.run.components import build_workflow
from exarl.run.member import RunResult, shown
from exarl.run.ray_processes import LearnerHost, Orders
from exarl.training.divergence import rolls_back

POLL_S = 0.2


def conduct(
    configuration: Configuration, layout: Layout, run: RunDirectory, show: bool
) -> RunResult:
    """Run learners and actors on a cluster, show how they do, and pass stop signals on.

    Learners that are lost with their machine are continued from the last checkpoint.
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
        nowhere = stack.enter_context(open(os.devnull, "w"))
        progress = shown(configuration.learner) if show else make_progress("", {}, nowhere)
        stack.callback(progress.close)
        # Where Ray writes at length what is told here in a line.
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
                found = attend(hosts, progress, signals)
                again = rolls_back(configuration.learner, found["summary"], orders.rollbacks)
                if not again or signals.received is not None:
                    return RunResult(run.path, found["reason"], found["summary"])
                orders = dataclasses.replace(orders, rollbacks=orders.rollbacks + 1)
            except ExarlError as error:
                if signals.received is not None and not run.exists():
                    raise Stopped(signals.received) from error
                if not isinstance(error, Lost) or not left or not run.exists():
                    raise
                left -= 1
                progress.note(f"{error}; continuing from the last checkpoint")
            finally:
                for host in hosts:
                    host.kill()


def _record(run: RunDirectory, part: str, _: Any, error: BaseException | None, *__: Any) -> None:
    """Leave the cause of an end that learners did not write down."""
    if error is not None:
        write_failure(run, error, part=part)


class Lost(ExarlError):
    """A learner's process is gone."""


def attend(hosts: list[Remote], progress: Progress, signals: StopSignals) -> dict[str, Any]:
    """See learners through to the end of their run; how it ended."""
    told, busy = False, ""
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
            if signals.received is not None and not told:
                told = True
                for host in hosts:
                    host.call("stop", signals.received, now=True)
            time.sleep(POLL_S)
    except ExarlError:
        raise
    except Exception as error:
        if isinstance(found := cause(error), ExarlError):
            raise found from None
        raise (Lost if gone(error) else ExarlError)(f"a learner was lost: {why(error)}") from error


def failed(outcome: dict[str, Any]) -> ExarlError:
    """What a learner says of its end, as an error here."""
    if outcome["code"] == ConfigError.exit_code:
        return ConfigError(outcome["error"])
    return ExarlError(outcome["error"])
