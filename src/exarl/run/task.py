"""One process's part in a run, and its connections to the other processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from exarl.comm.channel import Channel
from exarl.comm.layout import Layout, Role
from exarl.comm.team import LearnerTeam
from exarl.config import Configuration, LearnerConfig
from exarl.records.clock import Clock
from exarl.records.directory import RunDirectory
from exarl.records.lock import RunLock
from exarl.records.signals import StopSignals
from exarl.records.trace import Tracer
from exarl.training.actors import ActorPool
from exarl.training.callbacks import Callbacks
from exarl.types import Arrays, EnvSpec
from exarl.workflows.base import ExaWorkflow

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

T = TypeVar("T")


@dataclass(frozen=True)
class ProcessTask:
    """One process's part in a run, before anything is built.

    ``continues``: the run exists already. ``lock`` is taken when a new run is created, if it was not
    before. ``part`` names the part of the run that this process may write about; None: another
    process records failures.
    """

    configuration: Configuration
    layout: Layout
    role: Role
    workflow: ExaWorkflow
    run: RunDirectory
    signals: StopSignals
    clock: Clock
    continues: bool = False
    rollbacks: int = 0
    lock: RunLock | None = None
    part: str | None = None
    callbacks: Callbacks = Callbacks()

    @property
    def config(self) -> LearnerConfig:
        return self.configuration.learner


class Peers:
    """The other processes of a run, as one of them reaches them; here there are none."""

    library: str | None = None
    """What connects the processes, for the manifest."""
    channel: Channel | None = None
    players: Intracomm | None = None
    """The communicator of learners and actors, without the other members of environment groups."""
    group: Intracomm | None = None
    """The communicator of this process's environment group."""
    team: LearnerTeam | None = None
    actor_pool: ActorPool | None = None

    def share(self, data: T) -> T:
        """On every process what the first one has as ``data``, which must be plain enough for JSON."""
        return data

    def share_spec(self, own: EnvSpec | None) -> EnvSpec:
        """What the environments look like; ``own`` where this process has some."""
        assert own is not None
        return own

    def hand_out(self, states: Arrays) -> Arrays:
        """Give actors the stored states of their environments; on an actor, those it is given."""
        return states

    def dismiss(self) -> None:
        """Let go of actors that this process has started."""


def start_clock(config: LearnerConfig, role: Role) -> Clock:
    """A clock that counts from now on, and traces if that is configured."""
    return Clock(Tracer(role.rank, role.name, enabled=config.profile == "trace"))
