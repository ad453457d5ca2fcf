"""A simulation that joins a learner over a socket: ``exarl actor --join HOST:PORT``."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from exarl.comm import channel as mpi
from exarl.comm.codec import decode_arrays
from exarl.comm.devices import leave_gpu
from exarl.comm.layout import Layout
from exarl.comm.messages import (
    Grant,
    Leave,
    Order,
    Reply,
    SendState,
    Tag,
    Welcome,
    decode,
    encode,
)
from exarl.comm.waiting import wait_for
from exarl.errors import ConfigError, ExarlError
from exarl.records.directory import RunDirectory, writing
from exarl.records.ending import describe
from exarl.records.lock import part_of
from exarl.records.scratch import scratch
from exarl.records.signals import StopSignals, name_of
from exarl.run.abort import abort
from exarl.run.call import Call, Invitation, NoLearner
from exarl.run.hired_actor import HiredActor, stored_task
from exarl.run.play import serve, write_trace
from exarl.run.process import build_environments
from exarl.run.start import open_log
from exarl.run.task import Peers, ProcessTask
from exarl.types import Arrays

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

RETRY_EVERY_S = 1.0


def join_run(invitation: Invitation, ranks: int | None, say: Callable[[str], None]) -> int:
    """Act for the learner until it says that the run has ended, or a stop signal comes; returns the
    exit code.

    ``ranks`` ranks of this MPI job make up a simulation (None: all), and each simulation joins by
    itself. ``say`` tells the user what happens, on the first rank of each.
    """
    leave_gpu()
    launched = mpi.launched_ranks()
    size = launched[1] if launched is not None else 1
    if size % (ranks or size):
        raise ConfigError(f"--ranks {ranks} does not divide the {size} ranks of this job")
    with StopSignals() as signals:
        if (ranks or size) == 1:
            return Simulation(invitation, signals, say).act()
        world = mpi.launched_world()
        assert world is not None
        try:
            mpi.unname_shared_memory(world)
            group = mpi.split(world, world.rank // (ranks or size))
            simulation = Simulation(invitation, signals, say, group, world)
            return simulation.act() if group.rank == 0 else simulation.follow()
        except BaseException as error:
            abort(world, f"rank {world.rank}", error)
            raise


class Simulation:
    """One rank of a simulation; the ranks of ``group`` step its environments together."""

    def __init__(
        self,
        invitation: Invitation,
        signals: StopSignals,
        say: Callable[[str], None],
        group: Intracomm | None = None,
        world: Intracomm | None = None,
    ) -> None:
        self._invitation, self._signals, self._say = invitation, signals, say
        self._group, self._world = group, world
        self._channel = mpi.Channel(group) if group is not None else None
        self._ranks = group.size if group is not None else 1

    # -- the first rank ---------------------------------------------------------------------------

    def act(self) -> int:
        """Join, and act until the run has ended; once more where the learner was lost or says so."""
        until, said = self._deadline(), False
        while True:
            call = None
            try:
                call = Call(self._invitation, self._ranks)
                reply, behind = self._wait(call)
                if isinstance(reply, Welcome):
                    self._say(f"joined {self._invitation.address} as actor {reply.actor}")
                    until, said = self._deadline(), False
                    reply = self._act_as(call, reply, decode_arrays(behind))
                if isinstance(reply, Leave) and not reply.again:
                    return self._end(reply)
                until = self._deadline()
            except NoLearner as error:
                if self._signals.received is None and time.monotonic() > until:
                    raise
                if not said:
                    self._say(f"{error}; trying for {self._invitation.retry:g} s")
                said = True
                time.sleep(RETRY_EVERY_S)
            finally:
                if call is not None:
                    call.close(self._stopped().reason)
            if self._signals.received is not None:
                return self._end(self._stopped())

    def _act_as(self, call: Call, welcome: Welcome, states: Arrays) -> Leave:
        """Act as one actor until the learner leaves or a stop signal comes."""
        call.expect(welcome.timeout)
        self._tell(welcome)
        with contextlib.ExitStack() as stack:
            try:
                task, peers = self._task(welcome, stack), self._peers()
                actor = HiredActor(task, peers, stack, states, lambda: self._over(call))
                call.send(Tag.SPEC, encode(actor.env_spec))
                leave = self._obey(call, actor)
                write_trace(task)
                return leave
            except NoLearner:
                raise
            except BaseException as error:
                call.close(describe(error))
                if self._world is not None:
                    # Before the environments close: a close of all ranks would wait for ever.
                    abort(self._world, f"actor {welcome.actor}", error)
                raise

    def _obey(self, call: Call, actor: HiredActor) -> Leave:
        weights = np.empty(0, np.uint8)
        while True:
            order, behind = self._wait(call)
            if isinstance(order, Leave):
                return order
            if isinstance(order, Grant):
                weights = behind if len(behind) else weights
                call.send(Tag.BLOCK, actor.roll(weights, order.version))
            elif isinstance(order, SendState):
                call.send(Tag.STATE, actor.state(order.snapshot))

    def _wait(self, call: Call) -> tuple[Order | Reply, np.ndarray]:
        """What the learner says next; a ``Leave`` of this simulation's own when it is to stop."""

        def said() -> tuple[Order | Reply, np.ndarray] | None:
            if self._signals.received is not None:
                return self._stopped(), np.empty(0, np.uint8)
            return call.next()

        return wait_for(said)

    def _over(self, call: Call) -> bool:
        return call.over or self._signals.received is not None

    def _stopped(self) -> Leave:
        """Why a stop signal ends this simulation; without a reason while there was none."""
        signum = self._signals.received
        return Leave("") if signum is None else Leave(f"stopped by {name_of(signum)}", 128 + signum)

    def _end(self, leave: Leave) -> int:
        if leave.code == ConfigError.exit_code:
            raise ConfigError(f"the learner refused this simulation: {leave.reason}")
        if leave.code == ExarlError.exit_code:
            raise ExarlError(leave.reason)
        self._tell(leave)
        self._say(leave.reason)
        return leave.code

    def _deadline(self) -> float:
        return time.monotonic() + self._invitation.retry

    # -- all ranks --------------------------------------------------------------------------------

    def _tell(self, reply: Reply) -> None:
        if self._channel is not None:
            self._channel.send(encode(reply), range(1, self._ranks), Tag.WELCOME)

    def follow(self) -> int:
        """The part of the other ranks: take part in what the first one does."""
        assert self._channel is not None
        while True:
            reply = decode(self._channel.receive(0, Tag.WELCOME)[1], Reply)[0]
            if not isinstance(reply, Welcome):
                assert isinstance(reply, Leave)
                return reply.code
            with contextlib.ExitStack() as stack:
                task = self._task(reply, stack)
                environments = build_environments(task, self._peers(), stack)
                open_log(task, stack)
                serve(task, environments)

    def _peers(self) -> Peers:
        peers = Peers()
        peers.group = self._group
        return peers

    def _task(self, welcome: Welcome, stack: contextlib.ExitStack) -> ProcessTask:
        """The task of this rank as part of the actor that the learner says."""
        layout = Layout(1 + welcome.actors * self._ranks, 1, self._ranks)
        member = self._group.rank if self._group is not None else 0
        rank = layout.actor_rank(welcome.actor) + member
        run = self._place(welcome, stack)
        task = stored_task(welcome.configuration, layout, rank, run, welcome.rollbacks)
        return dataclasses.replace(task, signals=self._signals)

    def _place(self, welcome: Welcome, stack: contextlib.ExitStack) -> RunDirectory:
        """The run's directory if it is on a disk of this machine, else a folder of its own."""
        run = RunDirectory(Path(welcome.run))
        if part_of(run) == welcome.part:
            return run
        if (folder := self._invitation.folder) is None:
            return RunDirectory(stack.enter_context(scratch("exarl-actor-")))
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return RunDirectory(folder)
