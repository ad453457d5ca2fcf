"""A run: from a configuration to objects on each rank, to a run directory with a result in it."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from exarl.comm import mpi
from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.comm.devices import choose_device
from exarl.comm.messages import pack_json, unpack_json
from exarl.comm.team import MpiTeam
from exarl.components import (
    build_agent,
    check_configuration,
    check_same_run,
    configure,
    configure_again,
    generate,
    place_run,
    plan,
    script_flags,
)
from exarl.config import Configuration
from exarl.envs import group
from exarl.errors import ConfigError, ExarlError, StorageError
from exarl.member import Member, RunResult, shown
from exarl.runs.checkpoint import Checkpoint
from exarl.runs.directory import RunDirectory, check_place, expand, open_run
from exarl.runs.notes import note_error
from exarl.runs.profile import profiled
from exarl.types import EnvSpec

HELLO_TAG, START_TAG, STATES_TAG, PLACE_TAG = 21, 22, 23, 24


class ExaLearner(Member):
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
        check_place(expand(self.config.run_dir or self.config.output_dir))
        if self.config.run_dir and RunDirectory(expand(self.config.run_dir)).exists():
            self._known = open_run(expand(self.config.run_dir))
            check_same_run(self._known, self.configuration)

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
        learner._known = run
        return learner

    def _setup(self, configuration: Configuration, comm: Any, serial: bool, show: bool) -> None:
        self._comm: Any = None if serial else comm if comm is not None else mpi.launched_world()
        size, rank = (self._comm.size, self._comm.rank) if self._comm is not None else (1, 0)
        super().__init__(configuration, plan(configuration, size, serial), rank)
        check_configuration(configuration, size)
        self._show = show

    def run(self) -> RunResult | None:
        """Train until a stop criterion holds. The result on the learner, None on other ranks.

        With several ranks any error ends the whole job: its traceback is logged, then MPI aborts.
        """
        if self.layout.alone:
            return self._run_here()
        if self.workflow.hosted:
            from exarl.conduct import conduct

            self._find_place()
            return conduct(self.configuration, self.layout, self.run_directory, self._show)
        try:
            mpi.unname_shared_memory(self._comm)
            self.channel = mpi.Channel(self._comm)
            self._group_comm = mpi.split(self._comm, self.role.group)
            self.players = mpi.split(self._comm, None if self.role.member else 0)
            learners = mpi.split(self._comm, 0 if self.role.learns else None)
            choose_device(learners if self.role.learns else None)
            if self.role.learns and self.layout.learners > 1:
                every = getattr(self.workflow.config, "average_every", 1)
                self.team = MpiTeam(learners, every)
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
        self.begin()
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
            self.join_group(stack)
        if role.member:
            return self._serve(stack)
        self.build_agent(self._meet())
        self.workflow.ready(self)
        resumed = self._start(stack)
        if role.learns:
            with self.clock.phase("start"):
                seen = self._show and not role.rank
                self.build_loop(stack, resumed, shown(self.config) if seen else None)
        profile = self.run_directory.rank_file("profile", role.rank, "prof")
        with profiled(profile if self.config.profile == "cprofile" else None):
            self.workflow.run(self)
        return self.finish()

    def _find_place(self) -> None:
        """Everyone learns where the run will be: environments may want their folders there."""
        path = str((self._known or place_run(self.configuration)).path)
        if self.channel is not None:
            path = self.channel.share(path, PLACE_TAG)
        self.run_directory = RunDirectory(Path(path))

    def _meet(self) -> EnvSpec:
        """What the first actor's environments look like; learners wait for its word."""
        if self.role.acts:
            spec = self.adapter.spec
            if self.channel is not None and self.role.group == 0:
                learners = range(self.layout.learners)
                self.channel.send(pack_json(spec.to_json()), learners, HELLO_TAG)
            return spec
        assert self.channel is not None
        first = self.layout.actor_rank(0)
        return EnvSpec.from_json(unpack_json(self.channel.receive(first, HELLO_TAG)[1]))

    def _start(self, stack: contextlib.ExitStack) -> Checkpoint | None:
        """Everyone learns of the run directory, actors also of their environments' stored states."""
        library = mpi.library_version() if self.channel is not None else None
        resumed = self.start(stack, library, self._share)
        if self.role.rank == 0 and self.channel is not None:
            self.channel.send(encode_arrays(self.states), self.layout.actor_ranks(), STATES_TAG)
        if self.role.acts and self.channel is not None:
            self.states = decode_arrays(self.channel.receive(0, STATES_TAG)[1])
        if self.role.acts and self.states:
            self.rollout.restore(self.states)
        return resumed

    def _share(self, data: Any) -> Any:
        return data if self.channel is None else self.channel.share(data, START_TAG)

    def _serve(self, stack: contextlib.ExitStack) -> RunResult | None:
        """A member of an environment group: take part in its calls until dismissed."""
        assert self._group is not None and self.channel is not None
        self.channel.share(None, START_TAG)
        self.open_log(stack)
        agent = build_agent(self.configuration, self.adapter.spec)
        group.serve(self.envs, self._group, partial(generate, agent), self.clock.moved)
        self.write_trace()
        return None

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
