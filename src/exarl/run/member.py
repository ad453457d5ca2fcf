"""One process of a run: what it builds for its role, whoever started it."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from exarl.acting.rollout import Rollout
from exarl.comm.codec import BlockCodec
from exarl.comm.layout import Layout, Role
from exarl.comm.mpi import Channel
from exarl.comm.team import LearnerTeam
from exarl.config import STOPS, Configuration, LearnerConfig, tuned_in
from exarl.display.curve import draw_curve
from exarl.display.progress import Progress, make_progress
from exarl.envs import group
from exarl.envs.episode import Episode
from exarl.learning.exploration import Streams
from exarl.records.checkpoint import (
    Checkpoint,
    find_newest,
    fitting,
    load_checkpoint,
    set_aside_newer,
)
from exarl.records.clock import Clock
from exarl.records.directory import RunDirectory, open_regular, reason, writing
from exarl.records.ending import write_failure
from exarl.records.lock import RunLock
from exarl.records.logs import RankLog
from exarl.records.metrics import read_rows, read_table
from exarl.records.notes import note_run
from exarl.records.signals import StopSignals
from exarl.records.trace import Tracer
from exarl.records.watchdog import Watchdog
from exarl.run.components import (
    Home,
    build_agent,
    build_episode,
    build_evaluator,
    build_guard,
    build_workflow,
    create_run,
    generate,
    join_traces,
    remember_changes,
)
from exarl.run.situation import situation_of
from exarl.training.actors import Crew
from exarl.training.checkpointer import part_for
from exarl.training.divergence import MOST_ROLLBACKS, with_other_streams
from exarl.training.loop import LearningLoop
from exarl.types import Arrays, Block, EnvSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """How a run ended and where it is."""

    run_dir: Path
    reason: str
    summary: Mapping[str, Any]


class Member:
    """A rank and what belongs to it; ``_known`` is the run that it continues, if there is one."""

    def __init__(self, configuration: Configuration, layout: Layout, rank: int) -> None:
        self.configuration = configuration
        self.config: LearnerConfig = configuration.learner
        self.layout = layout
        self.role: Role = layout.role(rank)
        self.workflow = build_workflow(configuration)
        self.fresh = True
        self.backlog: list[Block] = []
        self.states: Arrays = {}
        self.missing_actors = 0
        self.rollbacks = 0
        self.team: LearnerTeam | None = None
        self.crew: Crew | None = None
        self.players: Any = None
        self.channel: Channel | None = None
        self.run_directory: RunDirectory
        self._known: RunDirectory | None = None
        self._group_comm: Any = None
        self._group: Channel | None = None
        self._rank_log: RankLog | None = None
        self._lock: RunLock | None = None
        self._part: str | None = None  # of the run that this process may write of

    def begin(self) -> None:
        """From here on time is counted and stop signals may come."""
        self.signals = StopSignals()
        tracer = Tracer(self.role.rank, self.role.name, enabled=self.config.profile == "trace")
        self.clock = Clock(tracer)

    # -- acting -----------------------------------------------------------------------------------

    def join_group(self, stack: contextlib.ExitStack) -> None:
        """Make this rank's environments; on an actor, the rollout's episodes over them."""
        config, role = self.config, self.role
        assert role.group is not None
        comm = self._group_comm
        shared = Channel(comm) if config.process_per_env > 1 else None
        self.envs = []
        self._episodes = []
        for slot, env_id in enumerate(self.layout.env_ids(role.group, config.envs_per_actor)):
            home = Home(self.run_directory, env_id, role.rank)
            env, adapter, limit = build_episode(self.configuration, comm, home)
            self.envs.append(env)
            if shared is not None and not role.member:
                env = group.join(env, shared, slot)
            self.adapter = adapter
            guard = build_guard(self.configuration, home)
            self._episodes.append(Episode(env, adapter, limit, config.seed, env_id, guard=guard))
        self._group = shared
        if shared is not None and not role.member:
            stack.callback(group.dismiss, shared)
        if not role.member:
            for episode in self._episodes:
                stack.callback(episode.close)

    def build_agent(self, spec: EnvSpec) -> None:
        """The acting half of the agent, and on an actor the rollout."""
        self.agent = build_agent(self.configuration, spec)
        self.codec = BlockCodec(spec, self.agent.recorded)
        if self.role.acts:
            ids = [episode.env_id for episode in self._episodes]
            streams = Streams(self.config.seed, ids)
            self.rollout = Rollout(
                self.agent,
                self._episodes,
                streams,
                self.config.block_steps,
                fixed_action=self.config.action_type == "fixed",
                spread=self._spread if self._group is not None else None,
                moved=self.clock.moved,
            )

    def _spread(self, rows: Arrays) -> Arrays:
        assert self._group is not None
        weights = self.agent.get_weights()
        return group.spread(self._group, weights, rows, partial(generate, self.agent))

    # -- the run directory ------------------------------------------------------------------------

    def start(
        self, stack: contextlib.ExitStack, library: str | None, share: Callable[[Any], Any]
    ) -> Checkpoint | None:
        """Open or create the run directory; what a learner continues from, if there is anything.

        ``library`` connects the ranks, for the manifest; ``share`` gives everyone what the first
        rank has.
        """
        resumed: Checkpoint | None = None
        path = None if self.role.rank else self._open_or_create(library)
        found = share(str(path) if path else None)
        path = Path(found) if found else None
        self.fresh = path is None
        self.open_log(stack)
        if self.role.learns and path is not None:
            with fitting(self.run_directory):
                stored = with_other_streams(load_checkpoint(path), self.rollbacks)
                resumed = part_for(stored, self.role.rank)
                self.states = resumed.arrays["envs"]
                pending = self.codec.unpack(resumed.arrays.get("pending", {}))
                self.backlog = pending[self.role.rank :: self.layout.learners]
        return resumed

    def continues(self, run: RunDirectory) -> None:
        """It is this run that goes on."""
        self._known = run

    def _open_or_create(self, library: str | None) -> Path | None:
        """Make the run directory; the checkpoint to continue from, where it is an older run's."""
        if self._known is not None:
            note_run(self._known.path)
            remember_changes(self._known, self.configuration)
            with writing(self._known.path):
                found = find_newest(self._known.checkpoints)
                set_aside_newer(self._known.checkpoints, found)
            if found is None:
                log.warning(
                    "no usable checkpoint in %s; starting from the beginning", self._known.path
                )
            return found
        if self._lock is not None:
            self._lock.take()
        layout = {**dataclasses.asdict(self.layout), "actors": self.layout.actors}
        create_run(self.configuration, layout, library, self.agent.spec, self.run_directory)
        note_run(self.run_directory.path)
        return None

    def failed(self, error: BaseException) -> None:
        """Leave the cause in this rank's log and, once the run is ours, in its summary."""
        if self._rank_log is not None:
            self._rank_log.failed(error)
        if self._part is None:
            return
        known = None
        if hasattr(self, "loop") and not self.role.rank:
            with contextlib.suppress(Exception):  # of a run that is broken already
                known = self.loop.summary()
        write_failure(
            self.run_directory,
            error,
            known,
            part=self._part,
            rank=self.role.rank,
            signum=self.signals.received,
        )

    def open_log(self, stack: contextlib.ExitStack) -> None:
        path = self.run_directory.rank_file("rank", self.role.rank, "log")
        level, shown = self.config.log_level_name(), not self.role.rank
        with writing(self.run_directory.path):
            path.parent.mkdir(exist_ok=True)
            os.close(open_regular(path, os.O_WRONLY | os.O_CREAT))
            self._rank_log = RankLog(path, level, terminal=shown)
            stack.callback(self._rank_log.close)
            watchdog = Watchdog(self.config.watchdog, path)
            stack.callback(watchdog.close)
        self.clock.on_move = watchdog.moved
        where = f"{socket.gethostname()}, process {os.getpid()}"
        log.info(
            "rank %d of %d, %s, on %s", self.role.rank, self.layout.world, self.role.name, where
        )

    # -- learning ---------------------------------------------------------------------------------

    def build_loop(
        self,
        stack: contextlib.ExitStack,
        resumed: Checkpoint | None,
        progress: Progress | None = None,
    ) -> None:
        """The learning half of the agent in its loop; without ``progress`` nobody looks on."""
        config = self.config
        learning = build_agent(self.configuration, self.agent.spec)
        if self.team is not None:
            learning.set_learner(team=self.team)  # type: ignore[call-arg]
        else:
            learning.set_learner()
        beyond = self.layout.actors * config.envs_per_actor  # the number of no training environment
        home = Home(self.run_directory, beyond, self.role.rank, "evaluation")
        nowhere = stack.enter_context(open(os.devnull, "w"))
        self._progress = progress or make_progress("", {}, nowhere)
        stack.callback(self._progress.close)
        self._progress.note(f"run directory {self.run_directory.path}")
        for note in tuned_in(self.configuration) if resumed is None else ():
            self._progress.note(note)
        if resumed is not None:
            other = f" with other random numbers (rollback {self.rollbacks} of {MOST_ROLLBACKS})"
            with fitting(self.run_directory):
                steps = int(resumed.numbers["counters"]["steps"])
            self._progress.note(f"continuing at step {steps:,}" + other * bool(self.rollbacks))
        self.loop = LearningLoop(
            learning,
            config,
            None if self.role.rank else self.run_directory,
            self._progress,
            self.clock,
            self.signals,
            resumed,
            check_every=getattr(self.workflow.config, "check_learners", 0),
            evaluator=None if self.role.rank else build_evaluator(self.configuration, home),
            situation=situation_of(self.configuration, self.workflow, self.layout),
        )
        stack.callback(self.loop.abandon)

    def finish(self) -> RunResult | None:
        """Write the end of the run; the result on the first learner."""
        self.write_trace()
        if self.role.rank:
            return None
        summary = self.loop.close()
        self._progress.close()
        if self.config.profile == "trace":
            join_traces(self.run_directory, None if self.workflow.hosted else self.layout.world)
        config, run = self.config, self.run_directory
        result = RunResult(run.path, str(summary["reason"]), summary)
        try:
            rows = read_rows(run.result)
        except OSError as error:  # the run itself is whole
            log.warning("no learning curve: cannot read %s: %s", run.result, reason(error))
            return result
        title = f"{config.agent} on {config.env} ({config.workflow}, seed {config.seed})"
        played = read_table(run.evaluations)
        draw_curve(rows, run.curve, title, config.target_reward, played)
        return result

    def write_trace(self) -> None:
        if self.config.profile == "trace":
            self.clock.tracer.write(self.run_directory.rank_file("trace", self.role.rank, "json"))


def shown(config: LearnerConfig) -> Progress:
    """The progress of a run on the terminal."""
    stops = {name: getattr(config, name) for name in STOPS}
    title = f"{config.agent} · {config.env} · {config.workflow}"
    return make_progress(title, stops, sys.stderr)
