"""A run: from a configuration to objects on each rank, to a run directory with a result in it."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from exarl.comm import mpi
from exarl.comm.codec import BlockCodec, decode_arrays, encode_arrays
from exarl.comm.devices import choose_device
from exarl.comm.layout import Layout, Role, plan_layout
from exarl.comm.team import LearnerTeam
from exarl.components import (
    STOPS,
    Home,
    build_agent,
    build_episode,
    build_evaluator,
    build_guard,
    build_workflow,
    check_configuration,
    check_same_run,
    configure,
    configure_again,
    create_run,
    generate,
    join_traces,
    place_run,
    remember_changes,
    script_flags,
)
from exarl.config import Configuration, LearnerConfig
from exarl.envs import group
from exarl.envs.episode import Episode
from exarl.errors import ConfigError, ExarlError, StorageError
from exarl.learning.exploration import Streams
from exarl.runs.checkpoint import Checkpoint, find_newest, load_checkpoint, set_aside_newer
from exarl.runs.clock import Clock
from exarl.runs.curve import draw_curve
from exarl.runs.directory import RunDirectory, check_place, expand, open_run
from exarl.runs.logs import RankLog
from exarl.runs.metrics import read_rows
from exarl.runs.notes import note_error, note_run
from exarl.runs.profile import profiled
from exarl.runs.progress import Progress, make_progress
from exarl.runs.signals import StopSignals
from exarl.runs.trace import Tracer
from exarl.runs.watchdog import Watchdog
from exarl.types import Arrays, Block, EnvSpec
from exarl.workflows.keeper import part_for
from exarl.workflows.learner import LearningLoop
from exarl.workflows.rollout import Rollout

log = logging.getLogger(__name__)

HELLO_TAG, START_TAG, STATES_TAG, PLACE_TAG = 21, 22, 23, 24


@dataclass(frozen=True)
class RunResult:
    """How a run ended and where it is."""

    run_dir: Path
    reason: str
    summary: Mapping[str, Any]


class ExaLearner:
    """One run of one configuration on the ranks of ``comm``.

    Without ``comm``, MPI is used when an MPI launcher started the program; ``serial`` keeps all in
    this process. ``argv`` are command-line words, by default those of the script (none in a session).
    Keyword arguments are parameters: ``ExaLearner(env="CartPole-v1", total_steps=10_000)``.
    """

    def __init__(
        self,
        comm: Any = None,
        *,
        config: str | os.PathLike[str] | None = None,
        argv: Sequence[str] | None = None,
        serial: bool = False,
        progress: bool = True,
        **overrides: Any,
    ) -> None:
        flags = script_flags() if argv is None else argv
        self._setup(configure(config, flags, overrides), comm, serial, progress)
        self._run: RunDirectory | None = None
        check_place(expand(self.config.run_dir or self.config.output_dir))
        if self.config.run_dir and RunDirectory(expand(self.config.run_dir)).exists():
            self._run = open_run(expand(self.config.run_dir))
            check_same_run(self._run, self.configuration)

    @classmethod
    def resume(
        cls,
        path: str | os.PathLike[str],
        comm: Any = None,
        *,
        argv: Sequence[str] = (),
        serial: bool = False,
        progress: bool = True,
    ) -> ExaLearner:
        """Continue the run in ``path``; ``argv`` may change when it stops."""
        run = open_run(path)
        learner = cls.__new__(cls)
        configuration = configure_again(run, argv)
        check_same_run(run, configuration)
        learner._setup(configuration, comm, serial, progress)
        learner._run = run
        return learner

    def _setup(self, configuration: Configuration, comm: Any, serial: bool, show: bool) -> None:
        self.configuration = configuration
        self.config: LearnerConfig = configuration.learner
        self._comm: Any = None if serial else comm if comm is not None else mpi.launched_world()
        size, rank = (self._comm.size, self._comm.rank) if self._comm is not None else (1, 0)
        config = self.config
        self.layout: Layout = plan_layout(size, config.learner_procs, config.process_per_env)
        self.role: Role = self.layout.role(rank)
        self.workflow = build_workflow(configuration)
        check_configuration(configuration, size)
        self._show = show
        self.backlog: list[Block] = []
        self.states: Arrays = {}
        self.missing_actors = 0
        self.team: LearnerTeam | None = None
        self.players: Any = None
        self.channel: mpi.Channel | None = None
        self._group_comm: Any = None
        self._group: mpi.Channel | None = None
        self._rank_log: RankLog | None = None

    def run(self) -> RunResult | None:
        """Train until a stop criterion holds. The result on the learner, None on other ranks.

        With several ranks any error ends the whole job: its traceback is logged, then MPI aborts.
        """
        if self.layout.alone:
            return self._run_here()
        try:
            mpi.unname_shared_memory(self._comm)
            self.channel = mpi.Channel(self._comm)
            self._group_comm = mpi.split(self._comm, self.role.group)
            self.players = mpi.split(self._comm, None if self.role.member else 0)
            learners = mpi.split(self._comm, 0 if self.role.learns else None)
            choose_device(learners if self.role.learns else None)
            if self.role.learns and self.layout.learners > 1:
                every = getattr(self.workflow.config, "average_every", 1)
                self.team = LearnerTeam(learners, every)
            result = self._run_here()
            if self.missing_actors:
                # The checkpoint is written; whoever is still in the middle of a step goes down.
                sys.stderr.flush()
                self._comm.Abort(128 + (self.signals.received or 0))
            self.channel.wait_for_all()
            return result
        except BaseException as error:
            self._abort(error)
            raise

    def _run_here(self) -> RunResult | None:
        self.signals = StopSignals()
        role = self.role
        tracer = Tracer(role.rank, role.name, enabled=self.config.profile == "trace")
        self.clock = Clock(tracer)
        with self.signals, contextlib.ExitStack() as stack:
            try:
                return self._play(stack)
            except BaseException as error:
                if self._rank_log is not None:
                    self._rank_log.failed(error)
                if not self.layout.alone:
                    # Before the environments close: a close of all ranks would wait for ever.
                    self._abort(error)
                raise

    def _play(self, stack: contextlib.ExitStack) -> RunResult | None:
        role = self.role
        self._find_place()
        if role.group is not None:
            self._join_group(stack)
        if role.member:
            return self._serve(stack)
        self._build_agent()
        self.workflow.ready(self)
        resumed = self._start(stack)
        if role.learns:
            with self.clock.phase("start"):
                self._build_loop(stack, resumed)
        profile = self.run_directory.rank_file("profile", role.rank, "prof")
        with profiled(profile if self.config.profile == "cprofile" else None):
            self.workflow.run(self)
        return self._finish()

    # -- building -------------------------------------------------------------------------------

    def _find_place(self) -> None:
        """Everyone learns where the run will be: environments may want their folders there."""
        path = str((self._run or place_run(self.configuration)).path)
        if self.channel is not None:
            path = self.channel.share(path, PLACE_TAG)
        self.run_directory = RunDirectory(Path(path))

    def _join_group(self, stack: contextlib.ExitStack) -> None:
        """Make this rank's environments; on an actor, the rollout's episodes over them."""
        config, role = self.config, self.role
        assert role.group is not None
        comm = self._group_comm
        shared = mpi.Channel(comm) if config.process_per_env > 1 else None
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

    def _build_agent(self) -> None:
        """The acting half on actors, the learning half on learners, from one environment spec."""
        if self.role.acts:
            spec = self.adapter.spec
            if self.channel is not None and self.role.group == 0:
                learners = range(self.layout.learners)
                self.channel.send(mpi.pack_json(spec.to_json()), learners, HELLO_TAG)
        else:
            assert self.channel is not None
            first = self.layout.actor_rank(0)
            spec = EnvSpec.from_json(mpi.unpack_json(self.channel.receive(first, HELLO_TAG)[1]))
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

    def _start(self, stack: contextlib.ExitStack) -> Checkpoint | None:
        """Open or create the run directory; everyone learns of it, and of stored environments."""
        resumed: Checkpoint | None = None
        states: Arrays = {}
        path = None if self.role.rank else self._open_or_create()
        if self.channel is not None:
            found = self.channel.share(str(path) if path else None, START_TAG)
            path = Path(found) if found else None
        self.fresh = path is None
        self._open_log(stack)
        if self.role.learns and path is not None:
            resumed = part_for(load_checkpoint(path), self.role.rank)
            states = resumed.arrays["envs"]
            pending = self.codec.unpack(resumed.arrays.get("pending", {}))
            self.backlog = pending[self.role.rank :: self.layout.learners]
        if self.role.rank == 0 and self.channel is not None:
            self.channel.send(encode_arrays(states), self.layout.actor_ranks(), STATES_TAG)
        if self.role.acts and self.channel is not None:
            states = decode_arrays(self.channel.receive(0, STATES_TAG)[1])
        self.states = states
        if self.role.acts and states:
            self.rollout.restore(states)
        return resumed

    def _open_or_create(self) -> Path | None:
        """Make the run directory; the checkpoint to continue from, where it is an older run's."""
        if self._run is not None:
            note_run(self._run.path)
            remember_changes(self._run, self.configuration)
            found = find_newest(self._run.checkpoints)
            set_aside_newer(self._run.checkpoints, found)
            if found is None:
                log.warning(
                    "no usable checkpoint in %s; starting from the beginning", self._run.path
                )
            return found
        layout = {**dataclasses.asdict(self.layout), "actors": self.layout.actors}
        library = mpi.library_version() if self.channel is not None else None
        about = self.agent.spec.about
        create_run(self.configuration, layout, library, about, self.run_directory)
        note_run(self.run_directory.path)
        return None

    def _open_log(self, stack: contextlib.ExitStack) -> None:
        path = self.run_directory.rank_file("rank", self.role.rank, "log")
        self._rank_log = RankLog(path, self.config.log_level_name(), terminal=not self.role.rank)
        stack.callback(self._rank_log.close)
        watchdog = Watchdog(self.config.watchdog, path)
        stack.callback(watchdog.close)
        self.clock.on_move = watchdog.moved
        log.info("rank %d of %d, %s", self.role.rank, self.layout.world, self.role.name)

    def _build_loop(self, stack: contextlib.ExitStack, resumed: Checkpoint | None) -> None:
        config = self.config
        learning = build_agent(self.configuration, self.agent.spec)
        if self.team is not None:
            learning.set_learner(team=self.team)  # type: ignore[call-arg]
        else:
            learning.set_learner()
        stops = {name: getattr(config, name) for name in STOPS}
        title = f"{config.agent} · {config.env} · {config.workflow}"
        beyond = self.layout.actors * config.envs_per_actor  # the number of no training environment
        home = Home(self.run_directory, beyond, self.role.rank, "evaluation")
        nowhere = stack.enter_context(open(os.devnull, "w"))
        self._progress: Progress = make_progress(
            title, stops, sys.stderr if self._show and not self.role.rank else nowhere
        )
        stack.callback(self._progress.close)
        self._progress.note(f"run directory {self.run_directory.path}")
        if resumed is not None:
            self._progress.note(f"continuing at step {resumed.numbers['counters']['steps']:,}")
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
        )
        stack.callback(self.loop.abandon)

    # -- ending ---------------------------------------------------------------------------------

    def _serve(self, stack: contextlib.ExitStack) -> RunResult | None:
        """A member of an environment group: take part in its calls until dismissed."""
        assert self._group is not None and self.channel is not None
        self.channel.share(None, START_TAG)
        self._open_log(stack)
        agent = build_agent(self.configuration, self.adapter.spec)
        group.serve(self.envs, self._group, partial(generate, agent), self.clock.moved)
        self._write_trace()
        return None

    def _finish(self) -> RunResult | None:
        self._write_trace()
        if self.role.rank:
            return None
        summary = self.loop.close()
        self._progress.close()
        if self.config.profile == "trace":
            join_traces(self.run_directory, self.layout.world)
        config, run = self.config, self.run_directory
        title = f"{config.agent} on {config.env} ({config.workflow}, seed {config.seed})"
        draw_curve(read_rows(run.result), run.curve, title, config.target_reward)
        return RunResult(run.path, str(summary["reason"]), summary)

    def _write_trace(self) -> None:
        if self.config.profile == "trace":
            self.clock.tracer.write(self.run_directory.rank_file("trace", self.role.rank, "json"))

    def _abort(self, error: BaseException) -> None:
        """Leave the traceback in this rank's log and on the terminal, then end every rank."""
        expected = isinstance(error, ConfigError | StorageError)
        text = f"exarl: {error}" if expected else "".join(traceback.format_exception(error))
        heading = f"rank {self.role.rank} ({self.role.name}) failed:\n"
        message = text if expected else heading + text
        sys.stderr.write(message.rstrip() + "\n")
        sys.stderr.flush()
        note_error(message)
        time.sleep(0.2)  # lets the launcher forward the message before it reports the abort
        self._comm.Abort(error.exit_code if isinstance(error, ExarlError) else 1)


def train(
    *, config: str | os.PathLike[str] | None = None, progress: bool = True, **parameters: Any
) -> RunResult | None:
    """Train once: ``exarl.train(agent="DQN-v0", env="CartPole-v1", total_steps=60_000)``."""
    return ExaLearner(config=config, argv=(), progress=progress, **parameters).run()
