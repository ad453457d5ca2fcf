"""What a run has cost: core-hours in environments and in learning."""

from __future__ import annotations

from dataclasses import dataclass

from exarl.config import LearnerConfig
from exarl.records.clock import LEARNING, Clock
from exarl.records.stops import CORE_HOURS
from exarl.training.counters import Counters
from exarl.training.rounds import Report
from exarl.types import ACTOR_PHASES


@dataclass(frozen=True)
class CoreHours:
    """Keeps account of a run's core-hours in its ``counters``.

    A second in an environment counts for each core of the environment, a second of learning once for
    each learner, since learners compute together. Waiting costs nothing here, nor does evaluation.
    """

    config: LearnerConfig
    counters: Counters
    clock: Clock

    def add(self, report: Report) -> None:
        """Count the time in environments; without blocks (``fused``) there is none."""
        spent = dict(zip(ACTOR_PHASES, report.seconds, strict=False))
        cores = self.config.cores_per_env or self.config.process_per_env
        seconds = spent.get("env", 0.0) + spent.get("restart", 0.0)
        self.counters.simulated_core_s += cores * seconds

    @property
    def learner_core_s(self) -> float:
        """Core-seconds in which the learners computed, over all parts of the run."""
        seconds = sum(self.clock.seconds.get(phase, 0.0) for phase in LEARNING)
        return self.counters.learner_core_s + self.config.learner_procs * seconds

    def columns(self) -> dict[str, float]:
        """The core-hours of the run so far."""
        simulated, learner = self.counters.simulated_core_s / 3600, self.learner_core_s / 3600
        return {
            "core_hours_simulated": round(simulated, 9),
            "core_hours_learner": round(learner, 9),
            CORE_HOURS: round(simulated + learner, 9),
        }
