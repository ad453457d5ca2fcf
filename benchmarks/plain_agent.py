"""A linear agent in NumPy alone that learns in a team: ``--agent plain_agent:Plain-v0``.

For runs in which the agent is not the point: without JAX a whole job takes a second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exarl import agents
from exarl.agents.base import ExaAgent, MakeNetwork, Team
from exarl.config import param
from exarl.learning.exploration import LEARNER, Streams, epsilon_greedy, generator
from exarl.types import Arrays, Block, EnvSpec, Metrics


@dataclass(frozen=True)
class PlainConfig:
    """Parameters of the linear agent."""

    learning_rate: float = param(0.01, "step size", gt=0)
    gamma: float = param(0.95, "discount factor", ge=0, le=1)
    epsilon: float = param(0.2, "exploration", ge=0, le=1)


class Plain(ExaAgent):
    """Q-learning on a linear function, one update a round."""

    Config = PlainConfig
    action_kind = "discrete"
    metrics = ("loss",)
    learns_in_team = True

    def __init__(self, spec: EnvSpec, config: PlainConfig, network: MakeNetwork, seed: int) -> None:
        super().__init__(spec, config, network, seed)
        assert spec.n_actions is not None
        shape = (spec.observation.shape[0], spec.n_actions)
        self._table = generator(seed, LEARNER, 0).normal(size=shape).astype(np.float32)

    def action(
        self, observations: np.ndarray, rng: Streams | None = None
    ) -> tuple[np.ndarray, Arrays]:
        q_values = observations @ self._table
        if rng is None:
            return q_values.argmax(-1), {}
        return epsilon_greedy(np, q_values, self.config.epsilon, rng.uniform(2)), {}

    def set_weights(self, weights: np.ndarray) -> None:
        self._table = np.array(weights, np.float32).reshape(self._table.shape)

    _team: Team | None = None

    def join_team(self, team: Team) -> None:
        self._team = team

    def set_learner(self) -> None:
        pass

    def train(self, block: Block) -> Metrics:
        return self.train_in_team(block, block.steps)

    def train_in_team(self, block: Block | None, steps: int) -> Metrics:
        slope = np.zeros_like(self._table)
        loss: Metrics = {}
        if block is not None:
            slope, error = self._slope(block)
            loss = {"loss": error}
        weight, team = float(block is not None), self._team
        if team is not None and team.every == 1:
            slope = team.average(slope.reshape(-1), weight).reshape(slope.shape)
        self._table = self._table + np.float32(self.config.learning_rate) * slope
        if team is not None and team.every > 1:
            self.set_weights(team.average(self._table.reshape(-1), weight))
        return {"updates": 1, **loss}

    def _slope(self, block: Block) -> tuple[np.ndarray, float]:
        """The direction of descent [D, A], and the mean squared error."""
        seen = block.observations[:-1].reshape(-1, self._table.shape[0])
        following = block.next_observations().reshape(seen.shape)
        taken, rows = block.actions.reshape(-1), np.arange(len(seen))
        bootstrap = (following @ self._table).max(-1) * ~block.terminated.reshape(-1)
        targets = block.rewards.reshape(-1) + self.config.gamma * bootstrap
        errors = targets - (seen @ self._table)[rows, taken]
        slope = np.zeros_like(self._table)
        np.add.at(slope.T, taken, (errors[:, None] * seen / len(seen)).astype(np.float32))
        return slope, float((errors**2).mean())

    def get_weights(self) -> np.ndarray:
        return self._table.reshape(-1).copy()


agents.register("Plain-v0", Plain)
