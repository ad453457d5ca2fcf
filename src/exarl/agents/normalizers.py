"""Running means and deviations of observations and returns, on the host and in a compiled program."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from exarl.agents.algorithm import AlgorithmConfig, Hyper
from exarl.agents.base import Team
from exarl.agents.blocks import AnyBlock, present
from exarl.errors import CheckpointError
from exarl.learning.normalise import Moments, deviation, normalised, sums_around, with_sums
from exarl.types import ABSENT, Array, Arrays, Batch, Block, EnvSpec, Namespace

NAMES = ("seen", "returns")


@dataclass(frozen=True)
class Normalizers:
    """Which statistics a configuration asks for, as pure functions of their moments.

    Moments are a pair: of observations, and of discounted returns.
    """

    observations: bool
    rewards: bool
    shape: tuple[int, ...]
    as_they_are: tuple[slice, ...] = ()
    """Parts of observations that are not normalised."""

    @classmethod
    def of(cls, config: AlgorithmConfig, spec: EnvSpec) -> Normalizers:
        """Images are not normalised, since networks scale them, nor are masks."""
        observation = spec.observation
        observations = config.normalize_observations and observation.dtype == "float32"
        others = tuple(part.place for part in spec.parts if part.kind != "numbers")
        return cls(observations, config.normalize_rewards, observation.shape, others)

    @property
    def used(self) -> bool:
        return self.observations or self.rewards

    def first(self) -> tuple[Moments, Moments]:
        """The moments before anything is seen."""
        return Moments.none(self.shape), Moments.none(())

    def after(
        self, xp: Namespace, moments: tuple[Moments, Moments], sums: list[Array]
    ) -> tuple[Moments, Moments]:
        """The moments after blocks that gave these ``sums``."""
        seen, returns = moments
        return with_sums(seen, sums[0], xp), with_sums(returns, sums[1], xp)

    def sums(self, xp: Namespace, moments: tuple[Moments, Moments], block: AnyBlock) -> list[Array]:
        """What a block adds to the moments, as vectors that can be summed over learners."""
        seen, returns = moments
        rows = block.observations[:-1].reshape(-1, *self.shape)
        summed = block.recorded.get("discounted_return", rows[:0]).reshape(-1)
        if ABSENT in block.recorded:
            here = present(xp, block).reshape(-1)
            rows, summed = rows[here], summed[here[: len(summed)]]
        return [sums_around(seen, rows, xp), sums_around(returns, summed, xp)]

    def sums_of_team(
        self, moments: tuple[Moments, Moments], block: Block | None, team: Team | None
    ) -> list[Array]:
        """The sums of the blocks of all learners; all of them call it, with a block or without."""
        sums: list[Array] = [np.zeros(1 + 2 * math.prod(self.shape)), np.zeros(3)]
        if block is not None:
            sums = self.sums(np, moments, block)
        if team is None or team.size == 1:
            return sums
        own = np.concatenate(sums).astype(np.float32)
        joined = team.average(own, 1.0).astype(np.float64) * team.size
        return list(np.split(joined, [len(sums[0])]))

    def of_observations(self, xp: Namespace, seen: Moments) -> dict[str, Array]:
        """Mean and deviation that observations are normalised with."""
        norm = {"mean": seen.mean, "std": deviation(xp, seen)}
        if not self.as_they_are:
            return norm
        kept = np.zeros(self.shape, bool)
        for place in self.as_they_are:
            kept[..., place] = True
        neutral = {"mean": 0.0, "std": 1.0}
        return {name: xp.where(kept, neutral[name], array) for name, array in norm.items()}

    def norm(self, xp: Namespace, moments: tuple[Moments, Moments]) -> dict[str, Array]:
        """What updates normalise with."""
        seen, returns = moments
        norm: dict[str, Array] = {}
        if self.observations:
            norm = self.of_observations(xp, seen)
        if self.rewards:
            norm["return_std"] = deviation(xp, returns)
        return {name: xp.asarray(array, xp.float32) for name, array in norm.items()}


def normalized_batch(xp: Namespace, hyper: Hyper, norm: Batch, batch: Batch) -> Batch:
    """A batch with its observations and rewards normalised, where ``norm`` has what that needs.

    Rewards are divided and then cut off; those of windows, ``rewards`` [..., n], are summed after that.
    """
    if "mean" in norm:
        names = [name for name in batch if name.endswith("observation")]
        seen = {n: normalised(xp, batch[n], norm["mean"], norm["std"]) for n in names}
        batch = {**batch, **seen}
    if "return_std" not in norm:
        return batch

    def learned(rewards: Array) -> Array:
        divided, limit = rewards / norm["return_std"], hyper.get("reward_clip")
        return divided if limit is None else divided.clip(-limit, limit)

    if "reward" in batch:
        return {**batch, "reward": learned(batch["reward"])}
    if (rewards := batch.get("rewards")) is None:
        return batch
    weights = xp.asarray(hyper["gamma"] ** xp.arange(rewards.shape[-1]), rewards.dtype)
    return {**batch, "reward": (weights * learned(rewards)).sum(-1)}


def stored(moments: tuple[Moments, Moments]) -> Arrays:
    """The moments as named arrays."""
    arrays: Arrays = {}
    for name, one in zip(NAMES, moments, strict=True):
        arrays[f"{name}/count"] = np.array(one.count)
        arrays |= {f"{name}/mean": np.asarray(one.mean), f"{name}/squares": np.asarray(one.squares)}
    return arrays


def restored(arrays: Arrays) -> tuple[Moments, Moments]:
    """What ``stored`` gave; CheckpointError where something is missing."""
    try:
        seen, returns = (
            Moments(float(arrays[f"{n}/count"]), arrays[f"{n}/mean"], arrays[f"{n}/squares"])
            for n in NAMES
        )
    except KeyError as error:
        raise CheckpointError(f"the checkpoint has no {error}") from error
    return seen, returns
