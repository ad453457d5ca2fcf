"""An agent whose updates sleep, as a learner on cores of its own would: ``--agent
sleeping_agent:Sleeping-v0``.

For measurements of workflows on a machine whose cores are busy with something else. In a team each
learner sleeps for its share of an update, and averages a real vector.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from exarl import agents
from exarl.agents.base import ExaAgent, MakeNetwork, Team
from exarl.config import param
from exarl.learning.exploration import Streams
from exarl.types import Arrays, Block, EnvSpec, Metrics


@dataclass(frozen=True)
class SleepingConfig:
    """Parameters of the sleeping agent."""

    update_seconds: float = param(0.01, "seconds of an update of the whole batch", ge=0)
    updates_per_step: float = param(1.0, "updates for each step", ge=0)
    weights: int = param(10_000, "numbers that learners average", ge=1)


class Sleeping(ExaAgent):
    """Always takes the first action."""

    Config = SleepingConfig
    action_kind = "discrete"
    learns_in_team = True

    def __init__(
        self, spec: EnvSpec, config: SleepingConfig, network: MakeNetwork, seed: int
    ) -> None:
        super().__init__(spec, config, network, seed)
        self._weights = np.zeros(config.weights, np.float32)
        self._team: Team | None = None
        self._steps = 0

    def action(
        self, observations: np.ndarray, rng: Streams | None = None
    ) -> tuple[np.ndarray, Arrays]:
        return np.zeros(len(observations), np.int64), {}

    def set_weights(self, weights: np.ndarray) -> None:
        self._weights = np.array(weights, np.float32)

    def join_team(self, team: Team) -> None:
        self._team = team

    def set_learner(self) -> None:
        pass

    def train(self, block: Block) -> Metrics:
        return self.train_in_team(block, block.steps)

    def train_in_team(self, block: Block | None, steps: int) -> Metrics:
        rate = self.config.updates_per_step
        updates = int((self._steps + steps) * rate) - int(self._steps * rate)
        self._steps += steps
        team = self._team if self._team is not None and self._team.size > 1 else None
        for _ in range(updates):
            time.sleep(self.config.update_seconds / (team.size if team else 1))
            if team is not None:
                team.average(self._weights, float(block is not None))
        return {"updates": updates}

    def get_weights(self) -> np.ndarray:
        return self._weights


agents.register("Sleeping-v0", Sleeping)
