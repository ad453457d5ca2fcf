"""What a workflow must do."""

from __future__ import annotations

from typing import Any

from exarl.agents.base import NoParameters
from exarl.config import LearnerConfig
from exarl.errors import ConfigError
from exarl.training.process import Actor, Learner, RunOutcome, RunProcess


class ExaWorkflow:
    """Decides who runs the rollout, how a block travels and when weights return.

    A workflow implements ``learn`` and, unless it runs on ``one_rank``, ``act``.
    """

    Config: type = NoParameters
    many_learners: bool = False
    """Whether ``learner_procs`` may be more than one."""
    one_rank: bool = False
    """Whether it runs on one rank only."""
    hosted: bool = False
    """Whether its learners and actors are processes that it starts itself (``exarl.run.supervise``)."""
    listens: bool = False
    """Whether it starts the learner only, in this process, and actors join (``exarl.run.listen``)."""
    one_sided: bool = False
    """Whether ranks read and write each other's memory (MPI windows)."""
    lags: bool = False
    """Whether blocks may have been acted with older weights than those they train."""

    def __init__(self, config: Any = None) -> None:
        self.config = config

    def check(self, run: LearnerConfig, ranks: int) -> None:
        """Raise ConfigError if a run with these parameters on ``ranks`` ranks cannot use it."""
        if self.one_rank and ranks > 1:
            raise ConfigError(f"workflow '{run.workflow}' runs on one rank, not on {ranks}")
        if run.learner_procs > 1 and not self.many_learners:
            raise ConfigError(f"workflow '{run.workflow}' has one learner: learner_procs must be 1")

    def ready(self, process: RunProcess) -> None:
        """Raise ConfigError for what cannot run here, and make what all processes make together.

        Called when ``process`` has its environments and an acting agent, before anything is written.
        """

    def run(self, process: Actor | Learner) -> RunOutcome | None:
        """Play the part of ``process`` until the run stops; by default ``learn`` or ``act``.

        Called on every learner and actor; the other members of environment groups serve their actor
        elsewhere. What it raises ends the whole job.
        """
        return self.learn(process) if isinstance(process, Learner) else self.act(process)

    def learn(self, learner: Learner) -> RunOutcome | None:
        """The part of a learner, which acts as well where ``learner.actor`` is given."""
        raise NotImplementedError

    def act(self, actor: Actor) -> RunOutcome | None:
        """The part of a process that only acts."""
        raise NotImplementedError
