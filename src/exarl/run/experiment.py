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
from exarl.comm.openmpi import check_one_sided
from exarl.comm.team import MpiTeam
from exarl.config import Configuration
from exarl.envs import group
from exarl.errors import EnvironmentFailure, ExarlError
from exarl.records.checkpoint import Checkpoint, fitting
from exarl.records.directory import RunDirectory, absolute, check_place, expand, open_run
from exarl.records.lock import RunLock
from exarl.records.notes import note_error
from exarl.records.profile import profiled
from exarl.run.components import (
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
from exarl.run.member import Member, RunResult, shown
from exarl.training.divergence import rolls_back
from exarl.training.snapshot import states_of
from exarl.types import EnvSpec

HELLO_TAG, START_TAG, STATES_TAG, PLACE_TAG, ROLLBACK_TAG = 21, 22, 23, 24, 25


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
        self._folder = absolute()  # before the user's modules are imported, which may go elsewhere
        self._setup(configure(config, flags, overrides), comm, serial, progress)
        check_place(self._folder / expand(self.config.run_dir or self.config.output_dir))
        self._look_for_run(self._new_place())

    @classmethod
    def resume(
        cls,
        path: str | os.PathLike[str],
        comm: Any = None,
        *,
        argv: Sequence[str] = (),
        serial: bool = False,
        progress: bool = True,
        trust: bool = False,
    ) -> ExaLearner:
        """Continue the run in ``path``; ``argv`` may change when it stops.

        ``trust`` says that it may run what it names, though this user has not made it here.
        """
        run = open_run(absolute(path))
        learner = cls.__new__(cls)
        configuration = configure_again(run, argv, trust)
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
            return self._run_on()
        if self.workflow.hosted:
            from exarl.run.supervise import conduct

            place = self._known or self._new_place()
            return conduct(self.configuration, self.layout, place, self._show)
        try:
            if self.workflow.one_sided:
                check_one_sided(mpi.library_version(), os.environ)
            mpi.unname_shared_memory(self._comm)
            self.channel = mpi.Channel(self._comm)
            self._group_comm = mpi.split(self._comm, self.role.group)
            self.players = mpi.split(self._comm, None if self.role.member else 0)
            learners = mpi.split(self._comm, 0 if self.role.learns else None)
            choose_device(learners if self.role.learns else None)
            if self.role.learns and self.layout.learners > 1:
                every = getattr(self.workflow.config, "average_every", 1)
                self.team = MpiTeam(learners, every)
            result = self._run_on()
            if self.missing_actors:
                # The checkpoint is written; actors that are still in the middle of a step go down.
                sys.stderr.flush()
                received = self.signals.received
                self._comm.Abort(1 if received is None else 128 + received)
            self.channel.close()
            if self.team is not None:
                self.team.channel.close()
            return result
        except BaseException as error:
            self._abort(error)
            raise

    def _run_on(self) -> RunResult | None:
        """Run; where a divergence takes the run back, once more from its last good checkpoint."""
        while True:
            result = self._run_here()
            if self.config.on_divergence != "rollback":
                return result
            again = result is not None and rolls_back(self.config, result.summary, self.rollbacks)
            if not self._share(again and self.signals.received is None, ROLLBACK_TAG):
                return result
            self.rollbacks += 1
            self.continues(self.run_directory)

    def _run_here(self) -> RunResult | None:
        self.begin()
        with self.signals, contextlib.ExitStack() as stack:
            try:
                return self._play(stack)
            except BaseException as error:
                self.failed(error)
                if not self.layout.alone:
                    if self._lock is not None:
                        self._lock.__exit__(type(error), error, error.__traceback__)
                    # Before the environments close: a close of all ranks would wait for ever.
                    self._abort(error)
                raise

    def _play(self, stack: contextlib.ExitStack) -> RunResult | None:
        role = self.role
        self._find_place(stack)
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

    def _find_place(self, stack: contextlib.ExitStack) -> None:
        """Take the run. Everyone learns where it is: environments may want their folders there."""
        place: tuple[str, str] | None = None
        if not self.role.rank:
            run = self._known or self._new_place()
            self._lock = RunLock(run)
            stack.push(self._lock)  # to let go of it at the end
            if self._known or self.config.run_dir:  # others may want the same one
                self._lock.take()
                self._look_for_run(run)  # it may have been begun while the lock was waited for
            place = str(run.path), self._lock.part
        if self.channel is not None:
            place = self.channel.share(place, PLACE_TAG)
        assert place is not None
        self.run_directory, self._part = RunDirectory(Path(place[0])), place[1]

    def _new_place(self) -> RunDirectory:
        """Where the run will be if it is not known yet."""
        return RunDirectory(self._folder / place_run(self.configuration).path)

    def _look_for_run(self, place: RunDirectory) -> None:
        """What was begun at ``place`` is continued, if it is the same run."""
        if self._known is None and place.exists():
            check_same_run(place, self.configuration)
            self._known = place

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
            for actor in range(self.layout.actors):
                ids = self.layout.env_ids(actor, self.config.envs_per_actor)
                own = encode_arrays(states_of(self.states, ids))
                # Posted: an actor may still be busy with its environments.
                self.channel.post(own, self.layout.actor_rank(actor), STATES_TAG)
        if self.role.acts and self.channel is not None:
            self.states = decode_arrays(self.channel.receive(0, STATES_TAG)[1])
        if self.role.acts and self.states:
            with fitting(self.run_directory):
                self.rollout.restore(self.states)
        return resumed

    def _share(self, data: Any, tag: int = START_TAG) -> Any:
        return data if self.channel is None else self.channel.share(data, tag)

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
        """Show the error, or have the launcher show it at the end; then end every rank."""
        who = f"rank {self.role.rank} ({self.role.name})"
        if isinstance(error, EnvironmentFailure):
            message = f"exarl: {who}: {error}"
        elif isinstance(error, ExarlError):
            message = f"exarl: {error}"
        else:
            message = f"{who} failed:\n" + "".join(traceback.format_exception(error))
        if not note_error(message):
            sys.stderr.write(message.rstrip() + "\n")
            sys.stderr.flush()
        time.sleep(0.2)  # lets the launcher forward the message before it reports the abort
        self._comm.Abort(error.exit_code if isinstance(error, ExarlError) else 1)


def train(
    *, config: str | os.PathLike[str] | None = None, progress: bool = True, **parameters: Any
) -> RunResult | None:
    """Train once: ``exarl.train(agent="DQN-v0", env="CartPole-v1", total_steps=60_000)``."""
    return ExaLearner(config=config, argv=(), progress=progress, **parameters).run()
