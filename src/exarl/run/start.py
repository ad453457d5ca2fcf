"""The start of a run in its directory: a new one, or a stored one with its newest checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exarl.comm.codec import BlockCodec
from exarl.comm.threads import own_threads
from exarl.config import Configuration
from exarl.records.checkpoint import (
    Checkpoint,
    check_made_for,
    find_newest,
    fitting,
    load_checkpoint,
    made_for,
    set_aside_newer,
)
from exarl.records.directory import (
    RunDirectory,
    expand,
    new_run_directory,
    open_regular,
    writing,
)
from exarl.records.lanes import LaneLog
from exarl.records.logs import RankLog
from exarl.records.manifest import make_manifest
from exarl.records.notes import note_run
from exarl.records.trust import sealed_run
from exarl.records.watchdog import Watchdog
from exarl.run.beginning import Beginning, find_beginning
from exarl.run.configure import UNSEALED, remember_changes
from exarl.run.task import ProcessTask
from exarl.training.checkpointer import part_for
from exarl.training.divergence import with_other_streams
from exarl.types import Arrays, Block, EnvSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stored:
    """What a learner goes on from: its checkpoint, the states of all environments, and the blocks
    that it has still to train."""

    checkpoint: Checkpoint
    states: Arrays
    backlog: Sequence[Block]


def place_run(configuration: Configuration) -> RunDirectory:
    """Where a new run of this configuration will be; nothing is written yet."""
    learner = configuration.learner
    if learner.run_dir:
        return RunDirectory(expand(learner.run_dir))
    return new_run_directory(learner.output_dir, learner.agent, learner.env, learner.workflow)


def create_run(
    configuration: Configuration,
    layout: Mapping[str, Any],
    mpi: str | None,
    spec: EnvSpec | None = None,
    run: RunDirectory | None = None,
    beginning: Beginning | None = None,
) -> RunDirectory:
    """Create a run directory for this configuration, with its manifest; ``run`` says where.

    ``spec`` describes the environment, ``beginning`` is what the run begins with of another one.
    """
    learner, run = configuration.learner, run or place_run(configuration)
    layout = {**layout, "envs_per_actor": learner.envs_per_actor}
    about = spec.about if spec is not None else {}
    facts: dict[str, Any] = {"mpi": mpi, "environment": {"id": learner.env, **about}}
    if spec is not None:
        facts["spec"] = spec.to_json()
    if beginning is not None:
        facts["start"] = beginning.facts
        beginning.keep(run)
    config = sealed_run(run.path, configuration.to_json(), UNSEALED)
    run.create(config, make_manifest(layout, learner.seed, **facts))
    return run


def open_or_create(task: ProcessTask, spec: EnvSpec, library: str | None) -> Path | None:
    """Create the run directory, or open that of a stored run and return the checkpoint to go on from.

    None where there is none. ``library`` connects the processes, for the manifest.
    """
    run = task.run
    if task.continues:
        note_run(run.path)
        remember_changes(run, task.configuration)
        with writing(run.path):
            newest = find_newest(run.checkpoints)
            set_aside_newer(run.checkpoints, newest)
        if newest is None:
            log.warning("no usable checkpoint in %s; starting from the beginning", run.path)
        return newest
    beginning = find_beginning(task.configuration, spec)
    if task.lock is not None:
        task.lock.take()
    layout = {**dataclasses.asdict(task.layout), "actors": task.layout.actors}
    create_run(task.configuration, layout, library, spec, run, beginning)
    note_run(run.path)
    return None


def load_stored(task: ProcessTask, spec: EnvSpec, codec: BlockCodec, path: Path) -> Stored:
    """This learner's part of the checkpoint at ``path``; CheckpointError where it does not fit."""
    loaded = load_checkpoint(path)
    with fitting(task.run, loaded):
        check_made_for(loaded, made_for(task.config, task.configuration.values["model"], spec))
        stored = with_other_streams(loaded, task.rollbacks)
        own = part_for(stored, task.role.rank)
        pending = codec.unpack(own.arrays.get("pending", {}))
        return Stored(own, own.arrays["envs"], pending[task.role.rank :: task.layout.learners])


def open_log(task: ProcessTask, stack: contextlib.ExitStack) -> RankLog:
    """This process's log file in the run directory, and its watchdog; ``stack`` closes both."""
    rank, run, config = task.role.rank, task.run, task.config
    path = run.rank_file("rank", rank, "log")
    with writing(run.path):
        path.parent.mkdir(exist_ok=True)
        os.close(open_regular(path, os.O_WRONLY | os.O_CREAT))
        rank_log = RankLog(path, config.log_level_name(), terminal=not rank)
        stack.callback(rank_log.close)
        watchdog = Watchdog(config.watchdog, path)
        stack.callback(watchdog.close)
        if config.profile == "lanes":
            lanes = LaneLog(run.rank_file("lanes", rank, "jsonl"), task.role.name, task.clock)
            stack.callback(lanes.close)
    task.clock.tell(watchdog.moved)
    where = f"{socket.gethostname()}, process {os.getpid()}"
    log.info("rank %d of %d, %s, on %s", rank, task.layout.world, task.role.name, where)
    threads = own_threads(os.environ, task.role.learns)
    log.info("cores of this rank: %s of %d", threads, len(os.sched_getaffinity(0)))
    return rank_log
