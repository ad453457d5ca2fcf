"""Looking after learners on a Ray cluster: showing how they do, stopping them, starting them again."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from pathlib import Path
from typing import Any

from exarl.comm.cluster import Cluster, Needs, Remote, cause, gone, resources, why
from exarl.comm.layout import Layout
from exarl.components import build_workflow
from exarl.config import Configuration
from exarl.errors import ConfigError, ExarlError
from exarl.hosts import LearnerHost, Orders
from exarl.member import RunResult, shown
from exarl.runs.directory import RunDirectory
from exarl.runs.progress import Progress, make_progress
from exarl.runs.signals import StopSignals

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
        nowhere = stack.enter_context(open(os.devnull, "w"))
        progress = shown(configuration.learner) if show else make_progress("", {}, nowhere)
        stack.callback(progress.close)
        # Where Ray writes at length what is told here in a line.
        stack.enter_context(contextlib.redirect_stdout(nowhere))
        stack.enter_context(Cluster(config.address, cpus))
        signals = stack.enter_context(StopSignals())  # after Ray has set its own
        gpus = config.learner_gpus
        if gpus is None:
            gpus = float(resources().get("GPU", 0) >= layout.learners)
        needs = Needs(config.learner_cpus, gpus)
        for left in reversed(range(config.learner_restarts + 1)):
            hosts = [
                Remote(LearnerHost, needs, orders, rank, needs, actors)
                for rank in range(layout.learners)
            ]
            try:
                found = attend(hosts, progress, signals)
                return RunResult(run.path, found["reason"], found["summary"])
            except Lost as error:
                if not left or not run.exists():
                    raise
                progress.note(f"{error}; continuing from the last checkpoint")
            finally:
                for host in hosts:
                    host.kill()
    raise AssertionError("unreachable")


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
