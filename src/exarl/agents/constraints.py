"""Limits on numbers beside the reward, kept by Lagrange multipliers.

A limit is on the sum of a number over an episode, or on its mean per step. Each constraint has a
multiplier of at least 0, which rises while the finished episodes break the limit and falls while they
do not. What is learned is the reward minus the costs at the multipliers' prices. So the multipliers
climb the dual of the constrained problem while the policy climbs its Lagrangian (Ray, Achiam and Amodei
2019, Benchmarking Safe Exploration in Deep Reinforcement Learning).

A multiplier moves once per block, by the mean over the episodes that ended there, however many these
are. It has a part in proportion to how far they are beyond the limit, beside the part that adds up:
without it, a policy that follows with a delay makes cost and multiplier swing (Stooke, Achiam and
Abbeel 2020, Responsive Safety in Reinforcement Learning by PID Lagrangian Methods).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from exarl.agents.algorithm import Hyper
from exarl.agents.base import Team
from exarl.config.grammar import Condition, read_condition
from exarl.errors import CheckpointError, ConfigError
from exarl.types import Array, Arrays, ArraySpec, Batch, Block, Namespace

COSTS = "costs"
"""Recorded in a block: [T, B, 2, C], the cost of each step and the sum so far in its episode."""
_MEAN = re.compile(r"mean\(\s*(?P<name>.*\S)\s*\)")
_KEPT = "constraints/"


class Dual(NamedTuple):
    """Where the multipliers of C constraints are."""

    multipliers: Array  # [C], the parts that add up
    beyond: Array  # [C], how far the last episodes were beyond each limit, in units of the limit
    length: Array  # the mean length of these episodes


@dataclass(frozen=True)
class Limit:
    """A condition on the number ``name`` of info: on its ``mean`` per step, or on its sum."""

    condition: Condition
    name: str
    mean: bool

    @classmethod
    def read(cls, text: str) -> Limit:
        """The limit ``NAME<NUMBER`` or ``mean(NAME)<NUMBER``, also with ``>``; else ConfigError."""
        condition = read_condition(text, "constraints")
        mean = _MEAN.fullmatch(condition.name)
        if mean is None:
            return cls(condition, condition.name, False)
        name = mean["name"]
        return cls(replace(condition, name=f"mean({name})"), name, True)


@dataclass(frozen=True)
class Constraints:
    """What a configuration asks for, as pure functions of the ``Dual``."""

    limits: tuple[Limit, ...]

    @classmethod
    def of(cls, config: object) -> Constraints:
        """ConfigError for a constraint that is none, or is given twice."""
        texts: tuple[str, ...] = getattr(config, "constraints", ())
        limits = tuple(Limit.read(text) for text in texts)
        columns = [limit.condition.name for limit in limits]
        if len(set(columns)) < len(columns):
            raise ConfigError(f"constraints: a number has one limit, not two ({', '.join(texts)})")
        return cls(limits)

    def __bool__(self) -> bool:
        return bool(self.limits)

    @property
    def names(self) -> tuple[str, ...]:
        """The numbers of info."""
        return tuple(limit.name for limit in self.limits)

    @property
    def recorded(self) -> dict[str, ArraySpec]:
        """What blocks record for them."""
        return {COSTS: ArraySpec((2, len(self.limits)), "float32")} if self else {}

    @property
    def columns(self) -> tuple[str, ...]:
        """The metrics, of each constraint."""
        kinds = ("cost", "violations", "multiplier")
        return tuple(f"{kind}/{limit.condition.name}" for limit in self.limits for kind in kinds)

    @property
    def first(self) -> Dual:
        """Before any episode has ended."""
        nothing = np.zeros(len(self.limits))
        return Dual(nothing, nothing, np.array(1.0))  # type: ignore[arg-type]

    def sums(self, xp: Namespace, costs: Array, ended: Array, lengths: Array) -> Array:
        """Of the episodes that ended in a block [T, B]: their count, their steps, their costs [C] and
        how many broke each limit [C]. ``lengths`` are those of the episodes where they ``ended``."""
        ended, lengths = ended[..., None], xp.where(ended, lengths, 1)[..., None]
        found = xp.where(ended, costs[:, :, 1], 0)
        over = (xp.where(self._means, found / lengths, found) - self._limits) * self._signs > 0
        count, steps = ended.sum(), xp.where(ended, lengths, 0).sum()
        by_limit = [found.sum((0, 1)), (over & ended).sum((0, 1))]
        return xp.concatenate([xp.stack([count, steps]), *by_limit])

    def sums_of_team(self, block: Block | None, team: Team | None) -> Array:
        """The ``sums`` of all learners' blocks; all of them call it, with a block or without."""
        sums: Array = np.zeros(2 + 2 * len(self.limits))
        if block is not None:
            lengths = np.zeros(block.ended.shape)
            lengths.T[block.ended.T] = block.episode_lengths
            costs = block.recorded[COSTS].astype(np.float64)
            sums = self.sums(np, costs, block.ended, lengths)
        if team is None or team.size == 1:
            return sums
        return team.average(np.asarray(sums, np.float32), 1.0).astype(np.float64) * team.size

    def costs(self, xp: Namespace, sums: Array) -> Array:
        """[C]: the mean of the episodes' sums, or their mean per step; NaN where none ended."""
        count, steps, found = sums[0], sums[1], sums[2 : 2 + len(self.limits)]
        return xp.where(
            count > 0, found / xp.maximum(xp.where(self._means, steps, count), 1), xp.nan
        )

    def after(self, xp: Namespace, hyper: Hyper, dual: Dual, sums: Array) -> Dual:
        """The dual after these episodes, or as it was where there are none."""
        beyond = (self.costs(xp, sums) - self._limits) * self._signs / self._scales
        risen = (dual.multipliers + hyper["constraint_rate"] * beyond).clip(0)
        moved = Dual(risen, beyond, sums[1] / xp.maximum(sums[0], 1))
        pairs = zip(moved, dual, strict=True)
        return Dual(*(xp.where(sums[0] > 0, new, old) for new, old in pairs))

    def multipliers(self, xp: Namespace, hyper: Hyper, dual: Dual) -> Array:
        """What costs are multiplied with, [C]."""
        return (dual.multipliers + hyper["constraint_damping"] * dual.beyond).clip(0)

    def norm(self, xp: Namespace, hyper: Hyper, dual: Dual) -> dict[str, Array]:
        """What updates learn with: the price of each cost, the share of the reward, and with means what
        is allowed per step at these prices."""
        multipliers = self.multipliers(xp, hyper, dual)
        share = 1 / (1 + multipliers.sum())
        # A mean counts as a sum over an episode of the present length, so that multipliers of both
        # are of one size.
        scales = self._scales * xp.where(self._means, dual.length, 1)
        prices = share * multipliers * self._signs / scales
        norm = {"prices": prices, "reward_share": share}
        if self._means.any():
            norm["allowed"] = (prices * self._limits * self._means).sum()
        return {name: xp.asarray(array, xp.float32) for name, array in norm.items()}

    def metrics(self, xp: Namespace, hyper: Hyper, dual: Dual, sums: Array) -> dict[str, Array]:
        """The multipliers; the cost and the share of violations of the episodes, NaN where none
        ended."""
        size = len(self.limits)
        multipliers, costs = self.multipliers(xp, hyper, dual), self.costs(xp, sums)
        broken = xp.where(sums[0] > 0, sums[2 + size :] / xp.maximum(sums[0], 1), xp.nan)
        told = (costs, broken, multipliers)
        return dict(zip(self.columns, xp.stack(told, 1).ravel(), strict=True))

    def stored(self, dual: Dual) -> Arrays:
        """The dual for a checkpoint."""
        if not self:
            return {}
        return {f"{_KEPT}{name}": np.array(array) for name, array in dual._asdict().items()}

    def restored(self, arrays: Arrays) -> Dual:
        """What ``stored`` gave; older checkpoints have the multipliers only. CheckpointError where
        these are missing."""
        if not self:
            return self.first
        names, first = [f"{_KEPT}{name}" for name in Dual._fields], self.first
        found = [arrays.get(name, like) for name, like in zip(names, first, strict=True)]
        right = all(a.shape == like.shape for a, like in zip(found, first, strict=True))
        if names[0] not in arrays or not right:
            raise CheckpointError("the checkpoint has no multipliers of these constraints")
        return Dual(*found)

    @property
    def _limits(self) -> np.ndarray:
        return np.array([limit.condition.limit for limit in self.limits])

    @property
    def _signs(self) -> np.ndarray:
        """Costs that must not fall below their limits count negatively."""
        return np.array([1.0 if limit.condition.below else -1.0 for limit in self.limits])

    @property
    def _scales(self) -> np.ndarray:
        """Costs count in units of their limits."""
        return np.array([abs(limit.condition.limit) or 1.0 for limit in self.limits])

    @property
    def _means(self) -> np.ndarray:
        return np.array([limit.mean for limit in self.limits], bool)


def priced_batch(xp: Namespace, norm: Batch, batch: Batch) -> Batch:
    """A batch whose reward is what the constraints make of it, where there are any."""
    if "prices" not in norm:
        return batch
    rest = {name: array for name, array in batch.items() if name != COSTS}
    paid = (batch[COSTS] * norm["prices"]).sum(-1) - norm.get("allowed", 0)
    return {**rest, "reward": norm["reward_share"] * batch["reward"] - paid}
