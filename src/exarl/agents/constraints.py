"""Limits on numbers beside the reward, kept by Lagrange multipliers.

Each constraint has a multiplier of at least 0, which rises while the finished episodes break the limit
and falls while they do not. What is learned is the reward minus the costs at the multipliers' prices.
So the multipliers climb the dual of the constrained problem while the policy climbs its Lagrangian
(Ray, Achiam and Amodei 2019, Benchmarking Safe Exploration in Deep Reinforcement Learning).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exarl.agents.base import Team
from exarl.config.grammar import Condition, read_condition
from exarl.errors import CheckpointError, ConfigError
from exarl.types import Arrays, ArraySpec, Batch, Block, Namespace

COSTS = "costs"
"""Recorded in a block: [T, B, 2, C], the cost of each step and the sum so far in its episode."""
_STORED = "constraints/multipliers"


@dataclass(frozen=True)
class Constraints:
    """What a configuration asks for, as functions of the multipliers [C]."""

    conditions: tuple[Condition, ...]
    rate: float

    @classmethod
    def of(cls, config: object) -> Constraints:
        """ConfigError for a constraint that is none, or is given twice."""
        texts: tuple[str, ...] = getattr(config, "constraints", ())
        conditions = tuple(read_condition(text, "constraints") for text in texts)
        names = [condition.name for condition in conditions]
        if len(set(names)) < len(names):
            raise ConfigError(f"constraints: a number has one limit, not two ({', '.join(texts)})")
        return cls(conditions, getattr(config, "constraint_rate", 0.0))

    def __bool__(self) -> bool:
        return bool(self.conditions)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(condition.name for condition in self.conditions)

    @property
    def recorded(self) -> dict[str, ArraySpec]:
        """What blocks record for them."""
        return {COSTS: ArraySpec((2, len(self.conditions)), "float32")} if self else {}

    @property
    def columns(self) -> tuple[str, ...]:
        """The metrics, of each constraint."""
        kinds = ("cost", "violations", "multiplier")
        return tuple(f"{kind}/{name}" for name in self.names for kind in kinds)

    @property
    def first(self) -> np.ndarray:
        return np.zeros(len(self.conditions))

    def sums(self, block: Block | None, team: Team | None) -> np.ndarray:
        """Of the episodes that ended: their count, the costs [C] and how many broke each limit [C]; of
        all learners, which all call it, with a block or without."""
        sums = np.zeros(1 + 2 * len(self.conditions))
        if block is not None:
            costs = block.recorded[COSTS][block.ended][:, 1].astype(np.float64)
            broken = [
                [not c.holds(v) for c, v in zip(self.conditions, e, strict=True)] for e in costs
            ]
            sums = np.concatenate([[len(costs)], costs.sum(0), np.sum(broken, 0) + self.first])
        if team is None or team.size == 1:
            return sums
        return team.average(sums.astype(np.float32), 1.0).astype(np.float64) * team.size

    def after(self, multipliers: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """The multipliers after these episodes: a step up the dual for each, kept at 0 or above."""
        count, costs = sums[0], sums[1 : 1 + len(self.conditions)]
        beyond = (costs - count * self._limits) * self._weights
        moved: np.ndarray = (multipliers + self.rate * beyond).clip(0)
        return moved

    def norm(self, multipliers: np.ndarray) -> Arrays:
        """What updates learn with: the price of each cost, and the share of the reward."""
        share = 1 / (1 + multipliers.sum())
        prices = share * multipliers * self._weights
        return {"prices": prices.astype(np.float32), "reward_share": np.array(share, np.float32)}

    def metrics(self, multipliers: np.ndarray, sums: np.ndarray) -> dict[str, float]:
        """Mean cost and share of violations of the episodes, where any ended; the multipliers."""
        told: dict[str, float] = {}
        count, size = sums[0], len(self.conditions)
        for i, name in enumerate(self.names):
            told[f"multiplier/{name}"] = float(multipliers[i])
            if count:
                told[f"cost/{name}"] = float(sums[1 + i] / count)
                told[f"violations/{name}"] = float(sums[1 + size + i] / count)
        return told

    def stored(self, multipliers: np.ndarray) -> Arrays:
        """The multipliers for a checkpoint."""
        return {_STORED: multipliers.copy()} if self else {}

    def restored(self, arrays: Arrays) -> np.ndarray:
        """What ``stored`` gave; CheckpointError where it is missing."""
        if not self:
            return self.first
        if (found := arrays.get(_STORED)) is None or found.shape != self.first.shape:
            raise CheckpointError("the checkpoint has no multipliers of these constraints")
        return found

    @property
    def _limits(self) -> np.ndarray:
        return np.array([condition.limit for condition in self.conditions])

    @property
    def _weights(self) -> np.ndarray:
        """Costs count in units of their limits; those that must not fall below one, negatively."""
        scales = np.array([abs(condition.limit) or 1.0 for condition in self.conditions])
        return np.array([1.0 if c.below else -1.0 for c in self.conditions]) / scales


def priced_batch(xp: Namespace, norm: Batch, batch: Batch) -> Batch:
    """A batch whose reward is what the constraints make of it, where there are any."""
    if "prices" not in norm:
        return batch
    rest = {name: array for name, array in batch.items() if name != COSTS}
    paid = (batch[COSTS] * norm["prices"]).sum(-1)
    return {**rest, "reward": norm["reward_share"] * batch["reward"] - paid}
