"""A run from Python: ``exarl.ExaLearner`` and ``exarl.train``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exarl.acting.evaluation import Evaluation
from exarl.comm import channel as mpi
from exarl.comm.openmpi import check_one_sided
from exarl.comm.placement import spread_learners
from exarl.config import Configuration
from exarl.envs.local import LocalEnv, register_local, with_local_env
from exarl.errors import ConfigError
from exarl.records.directory import RunDirectory, absolute, check_place, expand, open_run
from exarl.records.lock import RunLock
from exarl.records.signals import StopSignals
from exarl.run.abort import abort
from exarl.run.build import build_workflow
from exarl.run.checks import check_configuration, plan
from exarl.run.configure import (
    check_same_run,
    configure,
    configure_again,
    script_flags,
    stored_id,
)
from exarl.run.mpi_peers import MpiPeers
from exarl.run.play import Ended, RunResult, play
from exarl.run.process import terminal_progress
from exarl.run.start import place_run
from exarl.run.task import Peers, ProcessTask, start_clock
from exarl.training.callbacks import Callbacks, EndedEpisode, RunProgress
from exarl.training.divergence import rolls_back

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class ExaLearner:
    """One run of one configuration on the ranks of ``comm``.

    Without ``comm``, MPI is used when an MPI launcher started the program; ``serial`` keeps all in
    this process. ``argv`` are command-line words, by default those of the script (none in a session).
    Keyword arguments are parameters: ``ExaLearner(env="CartPole-v1", total_steps=10_000)``.
    """

    def __init__(
        self,
        comm: Intracomm | None = None,
        *,
        config: str | os.PathLike[str] | None = None,
        argv: Sequence[str] | None = None,
        serial: bool = False,
        progress: bool = True,
        callbacks: Callbacks = Callbacks(),  # noqa: B008 - frozen
        **overrides: Any,
    ) -> None:
        flags = script_flags() if argv is None else argv
        overrides = with_local_env(overrides)
        self._folder = absolute()  # before the user's modules are imported, which may go elsewhere
        self._setup(configure(config, flags, overrides), comm, serial, progress, callbacks)
        check_place(self._folder / expand(self.config.run_dir or self.config.output_dir))
        self._look_for_run(self._new_place())

    @classmethod
    def resume(
        cls,
        path: str | os.PathLike[str],
        comm: Intracomm | None = None,
        *,
        argv: Sequence[str] = (),
        serial: bool = False,
        progress: bool = True,
        trust: bool = False,
        callbacks: Callbacks = Callbacks(),  # noqa: B008 - frozen
        env: LocalEnv | None = None,
        **changes: Any,
    ) -> ExaLearner:
        """Continue the run in ``path``; ``changes`` and ``argv`` may change when it stops.

        ``env`` is the environment of a run that was given one as an object. ``trust`` allows the run
        to import what its configuration names, though this user did not write it.
        """
        run = open_run(path, fixed=True)
        if env is not None:
            register_local(env, stored_id(run, "env"))
        learner = cls.__new__(cls)
        configuration = configure_again(run, argv, trust, changes=changes)
        check_same_run(run, configuration)
        learner._setup(configuration, comm, serial, progress, callbacks)
        learner._known = run
        return learner

    def _setup(
        self,
        configuration: Configuration,
        comm: Intracomm | None,
        serial: bool,
        show: bool,
        callbacks: Callbacks,
    ) -> None:
        self._comm: Any = None if serial else comm if comm is not None else mpi.launched_world()
        size, rank = (self._comm.size, self._comm.rank) if self._comm is not None else (1, 0)
        self.configuration, self.config = configuration, configuration.learner
        self.layout = plan(configuration, size, serial)
        self.workflow = build_workflow(configuration)
        check_configuration(configuration, size)
        if self._comm is not None and not self.workflow.hosted:
            self._comm = spread_learners(self._comm, self.layout)
            rank = self._comm.rank
        self.role = self.layout.role(rank)
        if callbacks and self.workflow.hosted and not self.layout.alone:
            raise ConfigError(
                f"workflow '{self.config.workflow}' learns in another process: it takes no callbacks"
            )
        self._show, self._callbacks = show, callbacks
        self._known: RunDirectory | None = None  # the run that goes on, if there is one

    def run(self) -> RunResult | None:
        """Train until a stop criterion holds. The result on the learner, None on other ranks.

        With several ranks any error ends the whole job: its traceback is logged, then MPI aborts.
        """
        if self.layout.alone:
            return self._run_on(Peers())[0].result
        if self.workflow.hosted:
            place = self._known or self._new_place()
            if self.workflow.listens:
                from exarl.run.listen import listen as host
            else:
                from exarl.run.supervise import supervise as host
            return host(self.configuration, self.layout, place, self._show)
        try:
            if self.workflow.one_sided:
                check_one_sided(mpi.library_version(), os.environ)
            every = getattr(self.workflow.config, "average_every", 1)
            peers = MpiPeers(self._comm, self.layout, self.role, self.config.envs_per_actor, every)
            ended, signals = self._run_on(peers)
            if ended.outcome.missing_actors:
                # The checkpoint is written; actors that are still in the middle of a step go down.
                sys.stderr.flush()
                received = signals.received
                self._comm.Abort(1 if received is None else 128 + received)
            peers.close()
            return ended.result
        except BaseException as error:
            abort(self._comm, f"rank {self.role.rank} ({self.role.name})", error)
            raise

    def _run_on(self, peers: Peers) -> tuple[Ended, StopSignals]:
        """Run; where a divergence takes the run back, once more from its last good checkpoint."""
        rollbacks = 0
        while True:
            signals = StopSignals()
            ended = self._run_once(peers, signals, rollbacks)
            if self.config.on_divergence != "rollback":
                return ended, signals
            result = ended.result
            again = result is not None and rolls_back(self.config, result.summary, rollbacks)
            if not peers.share(again and signals.received is None):
                return ended, signals
            rollbacks += 1
            if result is not None:
                self._known = RunDirectory(result.run_dir)

    def _run_once(self, peers: Peers, signals: StopSignals, rollbacks: int) -> Ended:
        clock = start_clock(self.config, self.role)
        lock: RunLock | None = None
        with signals, contextlib.ExitStack() as stack:
            try:
                if not self.role.rank:
                    lock = RunLock(self._known or self._new_place())
                    stack.push(lock)  # to let go of it at the end
                run, part = self._find_place(peers, lock)
                task = ProcessTask(
                    self.configuration,
                    self.layout,
                    self.role,
                    self.workflow,
                    run,
                    signals,
                    clock,
                    continues=self._known is not None,
                    rollbacks=rollbacks,
                    lock=lock,
                    part=part,
                    callbacks=self._callbacks,
                )
                seen = self._show and not self.role.rank
                return play(
                    task, peers, stack, partial(terminal_progress, self.config) if seen else None
                )
            except BaseException as error:
                if not self.layout.alone:
                    if lock is not None:
                        lock.__exit__(type(error), error, error.__traceback__)
                    # Before the environments close: a close of all ranks would wait for ever.
                    abort(self._comm, f"rank {self.role.rank} ({self.role.name})", error)
                raise

    def _find_place(self, peers: Peers, lock: RunLock | None) -> tuple[RunDirectory, str]:
        """On every rank the run's directory, where environments may want folders, and the part of the
        run that begins. The first rank takes the lock of a run that others may want."""
        place: tuple[str, str] | None = None
        if lock is not None:
            if self._known or self.config.run_dir:
                lock.take()
                self._look_for_run(lock.run)  # it may have begun while this one waited for the lock
            place = str(lock.run.path), lock.part
        shared = peers.share(place)
        assert shared is not None
        return RunDirectory(Path(shared[0])), shared[1]

    def _new_place(self) -> RunDirectory:
        """Where the run will be if it is not known yet."""
        return RunDirectory(self._folder / place_run(self.configuration).path)

    def _look_for_run(self, place: RunDirectory) -> None:
        """Continue the run that exists at ``place``; ConfigError if it is another one."""
        if self._known is None and place.exists():
            check_same_run(place, self.configuration)
            self._known = place


def train(
    *,
    config: str | os.PathLike[str] | None = None,
    progress: bool = True,
    on_block: Callable[[RunProgress], object] | None = None,
    on_episode: Callable[[EndedEpisode], object] | None = None,
    on_evaluation: Callable[[Evaluation], object] | None = None,
    stop: Callable[[RunProgress], object] | None = None,
    **parameters: Any,
) -> RunResult | None:
    """Train once: ``exarl.train(agent="DQN-v0", env="CartPole-v1", total_steps=60_000)``.

    ``env`` may also be an environment, its class, or a function that makes environments. The functions
    are called on the first learner: after each block, each episode of training and each evaluation; the
    run ends when ``stop`` returns something true. The result is None on ranks other than the first.
    """
    callbacks = Callbacks(on_block, on_episode, on_evaluation, stop)
    return ExaLearner(
        config=config, argv=(), progress=progress, callbacks=callbacks, **parameters
    ).run()


def resume(
    run: str | os.PathLike[str],
    *,
    env: LocalEnv | None = None,
    progress: bool = True,
    trust: bool = False,
    on_block: Callable[[RunProgress], object] | None = None,
    on_episode: Callable[[EndedEpisode], object] | None = None,
    on_evaluation: Callable[[Evaluation], object] | None = None,
    stop: Callable[[RunProgress], object] | None = None,
    **changes: Any,
) -> RunResult | None:
    """Continue a run: ``exarl.resume("my_run", total_steps=120_000)``.

    A run that was given its environment as an object needs it again as ``env``. The other arguments are
    those of ``train``; ``trust`` allows code named by a run that this user did not make.
    """
    callbacks = Callbacks(on_block, on_episode, on_evaluation, stop)
    return ExaLearner.resume(
        run, progress=progress, trust=trust, callbacks=callbacks, env=env, **changes
    ).run()
