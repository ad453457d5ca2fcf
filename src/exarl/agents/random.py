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
    factors_actions = respects_masks = True

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
        shape = (len(observations), *self.spec.action.shape)
        size = int(np.prod(self.spec.action.shape))
        alone = (len(observations), size)
        if not self._bounded:
            normal = self._greedy.standard_normal(alone) if rng is None else rng.normal(size)
            return normal.reshape(shape).astype(np.float32), {}
        uniform = self._greedy.random(alone) if rng is None else rng.uniform(size)
        if (allowed := self.spec.allowed(observations)) is not None:
            zeros = np.zeros(allowed.shape, np.float32)
            there = is_allowed(among(np, zeros, allowed, self.spec.choices))
            drawn = uniform_among(np, there, uniform if self.spec.choices else uniform[:, 0])
            return np.asarray(drawn), {}
        if self.spec.discrete:
            counts = np.array(self.spec.choices or self.spec.n_actions)
            return (uniform * counts).astype(np.int64).reshape(shape), {}
        return (2 * uniform - 1).reshape(shape).astype(np.float32), {}

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
