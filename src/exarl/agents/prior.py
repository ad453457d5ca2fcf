"""Experience from before a run: what an agent with a replay learns from beside its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from exarl.agents.algorithm import Algorithm, AlgorithmConfig, Hyper
from exarl.agents.constraints import COSTS
from exarl.agents.normalizers import Normalizers
from exarl.agents.offpolicy import OffPolicy
from exarl.errors import CheckpointError, ConfigError
from exarl.learning.exploration import LEARNER, generator
from exarl.learning.normalise import Moments
from exarl.types import Arrays, Block

if TYPE_CHECKING:
    from exarl.agents.cloning import Cloner
    from exarl.agents.compiled import CompileObserver


@dataclass(frozen=True)
class Prior:
    """Whole episodes, each a block of one environment, and the part of every batch that they are."""

    blocks: tuple[Block, ...]
    part: float = 0.5
    sums: Mapping[str, str] = field(default_factory=dict)
    """The checksums of the files, by path."""

    def share(self, batch_size: int) -> int:
        """How many rows of a batch come from here."""
        return min(round(self.part * batch_size), batch_size - 1)

    def check_same(self, stored: object) -> None:
        """CheckpointError if a checkpoint was written with other data."""
        if not isinstance(stored, Mapping):
            raise CheckpointError("the checkpoint is of a run without prior_data")
        for path, found in self.sums.items():
            if stored.get(path) != found:
                raise CheckpointError(
                    f"prior_data {path} has changed since the checkpoint was written"
                )


def episode_block(
    observations: np.ndarray,
    actions: np.ndarray,
    rewards: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
) -> Block:
    """A whole episode [N (+ 1), ...] as a block of one environment; one that does not say that it has
    terminated is truncated."""
    ends = np.array(truncated, bool)
    ends[-1] |= not terminated[-1]
    return Block(
        observations[:, None],
        actions[:, None],
        np.asarray(rewards, np.float32)[:, None],
        np.asarray(terminated, bool)[:, None],
        ends[:, None],
        observations[-1:],
        np.array([rewards.sum()], np.float64),
        np.array([len(rewards)], np.int64),
    )


def with_returns(block: Block, discount: float) -> Block:
    """The block with the discounted sums of its rewards so far, which reward normalisation needs."""
    sums, total = np.zeros_like(block.rewards), np.zeros(block.rewards.shape[1], np.float32)
    for t, rewards in enumerate(block.rewards):
        total = np.float32(discount) * total + rewards
        sums[t] = total
    return replace(block, recorded={**block.recorded, "discounted_return": sums})


def prior_rows(
    algorithm: Algorithm[AlgorithmConfig], hyper: Hyper, blocks: tuple[Block, ...]
) -> Arrays:
    """The rows of a replay that these episodes give; ConfigError where the algorithm needs what they
    do not have."""
    if algorithm.memory and algorithm.recurrent:
        raise ConfigError("prior_data cannot be learned with a network that has memory: use an MLP")
    if algorithm.generated:
        raise ConfigError("prior_data needs data_generation learner")
    if COSTS in algorithm.recorded:
        raise ConfigError("prior_data cannot be used with constraints: it has no costs")
    made = [algorithm.rows(np, hyper, block) for block in blocks]
    return {name: np.concatenate([rows[name] for rows in made]) for name in made[0]}


def make_cloner(
    algorithm: Algorithm[AlgorithmConfig],
    hyper: Hyper,
    rows: Arrays | None,
    seed: int,
    observer: CompileObserver,
) -> Cloner:
    """What clones the actions of prior data; ConfigError where there are none."""
    from exarl.agents.cloning import Cloner

    if rows is None or not isinstance(algorithm, OffPolicy):
        raise ConfigError("clone needs prior_data")
    return Cloner(algorithm, hyper, rows, generator(seed, LEARNER, 2), observer)


def moments_with(
    prior: Prior, normalizers: Normalizers, moments: tuple[Moments, Moments], discount: float
) -> tuple[Moments, Moments]:
    """The moments of normalisers that have seen the prior data."""
    for block in prior.blocks:
        sums = normalizers.sums(np, moments, with_returns(block, discount))
        moments = normalizers.after(np, moments, sums)
    return moments
