"""What a workflow is given and what it must do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from exarl.acting.rollout import Rollout
from exarl.agents.base import ExaAgent, NoParameters
from exarl.comm.codec import BlockCodec
from exarl.comm.layout import Layout, Role
from exarl.comm.mpi import Channel
from exarl.comm.team import LearnerTeam
from exarl.config import LearnerConfig
from exarl.envs.spaces import SpaceAdapter
from exarl.records.clock import Clock
from exarl.records.directory import RunDirectory
from exarl.records.signals import StopSignals
from exarl.training.actors import Crew
from exarl.training.loop import LearningLoop
from exarl.types import Arrays, Block


class Experiment(Protocol):
    """The run as a workflow sees it (``exarl.ExaLearner`` is one).

    ``rollout`` exists on actors, ``loop`` on learners, ``channel`` between several ranks.
    """

    config: LearnerConfig
    layout: Layout
    role: Role
    agent: ExaAgent
    channel: Channel | None
    fresh: bool
    crew: Crew | None  # actors of a learner that hires them
    players: Any  # the communicator of learners and actors, without the groups' other members
    team: LearnerTeam | None
    codec: BlockCodec
    envs: list[Any]  # this rank's environments
    adapter: SpaceAdapter  # of them
    run_directory: RunDirectory
    rollout: Rollout
    loop: LearningLoop
    clock: Clock
    signals: StopSignals
    backlog: list[Block]  # blocks a resumed run had not trained yet
    states: Arrays  # of a resumed run's environments, on a learner
    missing_actors: int  # actors that did not answer when told to stop


class ExaWorkflow(ABC):
    """Says who runs the rollout, how a block travels and when weights return."""

    Config: type = NoParameters
    many_learners: bool = False
    """Whether ``learner_procs`` may be more than one."""
    one_rank: bool = False
    """Whether it runs on one rank only."""
    hosted: bool = False
    """Whether its learners and actors are processes that it starts itself (``exarl.run.supervise``)."""
    one_sided: bool = False
    """Whether ranks read and write each other's memory (MPI windows)."""
    lags: bool = False
    """Whether blocks may have been acted with older weights than those they train."""

    def __init__(self, config: Any = None) -> None:
        self.config = config

    def ready(self, learner: Experiment) -> None:  # noqa: B027 - most have nothing to refuse
        """Refuse what cannot be run, by a ConfigError, and make what all ranks make together:
        ``learner`` has its environments and an acting agent, and nothing has been written yet."""

    @abstractmethod
    def run(self, learner: Experiment) -> None:
        """Play this rank's role until the learner's loop is finished.

        Called on every learner and actor; the other members of environment groups are served
        elsewhere. What raises here ends the whole job.
        """
