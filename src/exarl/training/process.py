"""A process of a run, built once: what a workflow is given on an actor and on a learner, and what it
returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from exarl.acting.rollout import Rollout
from exarl.agents.base import ExaAgent
from exarl.comm.channel import Channel
from exarl.comm.codec import BlockCodec
from exarl.comm.layout import Layout, Role
from exarl.comm.team import LearnerTeam
from exarl.config import LearnerConfig
from exarl.envs.spaces import SpaceAdapter
from exarl.records.clock import Clock
from exarl.records.directory import RunDirectory
from exarl.records.signals import StopSignals
from exarl.training.actors import ActorPool, Tally
from exarl.training.loop import LearningLoop
from exarl.types import Arrays, Block

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


@dataclass(frozen=True, kw_only=True)
class RunProcess:
    """What learners and actors have in common, before anything of the run is written.

    ``channel`` connects all MPI ranks and ``players`` is the communicator of learners and actors; a
    process alone, and one on a Ray cluster, has neither.
    """

    config: LearnerConfig
    layout: Layout
    role: Role
    run_directory: RunDirectory
    clock: Clock
    signals: StopSignals
    agent: ExaAgent  # its acting half
    codec: BlockCodec
    channel: Channel | None = None
    players: Intracomm | None = None
    envs: Sequence[Any] = ()  # of this process, as made
    adapter: SpaceAdapter | None = None  # of its environments


@dataclass(frozen=True, kw_only=True)
class Actor(RunProcess):
    """A process that acts; ``fresh``: in a run that has no checkpoint yet."""

    rollout: Rollout
    fresh: bool


@dataclass(frozen=True, kw_only=True)
class Learner(RunProcess):
    """A process that learns, and also acts where ``actor`` is given.

    Of a resumed run, ``states`` are those of all environments and ``backlog`` the blocks that this
    learner has still to train. ``actor_pool`` starts actors on a cluster.
    """

    loop: LearningLoop
    fresh: bool
    states: Arrays = field(default_factory=dict)
    backlog: Sequence[Block] = ()
    team: LearnerTeam | None = None
    actor_pool: ActorPool | None = None
    actor: Actor | None = None


@dataclass(frozen=True)
class RunOutcome:
    """How a process's part of a run ended; ``tally``: what became of the blocks, where counted."""

    tally: Tally | None = None

    @property
    def missing_actors(self) -> int:
        """How many actors did not answer when asked to stop."""
        return self.tally.missing if self.tally is not None else 0
