"""What a workflow is given and what it must do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from exarl.agents.base import ExaAgent, NoParameters
from exarl.comm.codec import BlockCodec
from exarl.comm.layout import Layout, Role
from exarl.comm.mpi import Channel
from exarl.config import LearnerConfig
from exarl.runs.clock import Clock
from exarl.runs.signals import StopSignals
from exarl.workflows.learner import LearningLoop
from exarl.workflows.rollout import Rollout


class Experiment(Protocol):
    """The run as a workflow sees it (``exarl.ExaLearner`` is one).

    ``rollout`` exists on actors, ``loop`` on learners, ``channel`` between several ranks.
    """

    config: LearnerConfig
    layout: Layout
    role: Role
    agent: ExaAgent
    channel: Channel | None
    codec: BlockCodec
    rollout: Rollout
    loop: LearningLoop
    clock: Clock
    signals: StopSignals


class ExaWorkflow(ABC):
    """Says who runs the rollout, how a block travels and when weights return."""

    Config: type = NoParameters

    def __init__(self, config: Any = None) -> None:
        self.config = config

    @abstractmethod
    def run(self, learner: Experiment) -> None:
        """Play this rank's role until the learner's loop is finished.

        Called on every learner and actor; the other members of environment groups are served
        elsewhere. What raises here ends the whole job.
        """
