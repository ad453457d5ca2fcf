"""Random-v0: acts uniformly at random and learns nothing; the baseline that others must beat."""

from __future__ import annotations

import numpy as np

from exarl.agents.base import ExaAgent, MakeNetwork, NoParameters, Team
from exarl.learning.distributions import among, is_allowed, uniform_among
from exarl.learning.exploration import EVALUATION, LEARNER, Streams, generator
from exarl.types import Arrays, Block, EnvSpec, Metrics


class Random(ExaAgent):
    """Uniform actions; of an unbounded space, standard normal ones."""

    action_kind = "any"
    learns_in_team = True
    factors_actions = respects_masks = mixes_actions = True

    def __init__(
        self, spec: EnvSpec, config: NoParameters, network: MakeNetwork, seed: int
    ) -> None:
        super().__init__(spec, config, network, seed)
        self._bounded = bool(np.isfinite([*spec.action_low, *spec.action_high]).all())
        self._greedy = generator(seed, LEARNER, 0)  # a random policy has no greedy one

    def action(
        self,
        observations: np.ndarray,
        rng: Streams | None = None,
        memory: Arrays | None = None,
    ) -> tuple[np.ndarray, Arrays]:
        spec, rows = self.spec, len(observations)
        if spec.mixed:
            numbers, chosen = self._numbers(rows, rng), self._chosen(observations, rng)
            return np.concatenate([numbers, chosen], 1, dtype=np.float32), {}
        drawn = self._chosen(observations, rng) if spec.discrete else self._numbers(rows, rng)
        return drawn.reshape(rows, *spec.action.shape), {}

    def _numbers(self, rows: int, rng: Streams | None) -> np.ndarray:
        """Continuous numbers of actions, [B, numbers]."""
        size = self.spec.numbers
        if not self._bounded:
            normal = self._greedy.standard_normal((rows, size)) if rng is None else rng.normal(size)
            return normal.astype(np.float32)
        return (2 * self._uniform(rows, size, rng) - 1).astype(np.float32)

    def _chosen(self, observations: np.ndarray, rng: Streams | None) -> np.ndarray:
        """Choices [B, factors], or [B, 1] of a single one."""
        spec = self.spec
        uniform = self._uniform(len(observations), len(spec.choices) or 1, rng)
        if (allowed := spec.allowed(observations)) is None:
            counts = np.array(spec.choices or spec.n_actions)
            return (uniform * counts).astype(np.int64)
        zeros = np.zeros(allowed.shape, np.float32)
        there = is_allowed(among(np, zeros, allowed, spec.choices))
        drawn = uniform_among(np, there if spec.choices else there[:, None], uniform)
        return np.asarray(drawn)

    def _uniform(self, rows: int, size: int, rng: Streams | None) -> np.ndarray:
        return self._greedy.random((rows, size)) if rng is None else rng.uniform(size)

    def begin_episode(self, number: int) -> None:
        self._greedy = generator(self.seed, EVALUATION, number)

    def set_weights(self, weights: np.ndarray) -> None:
        pass

    def join_team(self, team: Team) -> None:
        pass

    def set_learner(self) -> None:
        pass

    def train(self, block: Block) -> Metrics:
        return {"updates": 0}

    def train_in_team(self, block: Block | None, steps: int) -> Metrics:
        return {"updates": 0}

    def get_weights(self) -> np.ndarray:
        return np.zeros(1, np.float32)
