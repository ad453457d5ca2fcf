"""What the algorithms that learn from a replay share: parameters, transitions, targets that lag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

from exarl.agents.algorithm import (
    Algorithm,
    AlgorithmConfig,
    AnyBlock,
    Hyper,
    TrainState,
    flat,
)
from exarl.config import param
from exarl.learning.returns import n_step_returns
from exarl.types import Array, Batch, Namespace


@dataclass(frozen=True)
class OffPolicyConfig(AlgorithmConfig):
    """Parameters of the algorithms that learn from a replay."""

    batch_size: int = param(64, "transitions in an update", ge=1, le=10**6)
    updates_per_step: float = param(
        1.0, "updates per environment step, rounded to whole updates per block", gt=0, le=10**4
    )
    learning_starts: int = param(1000, "environment steps before the first update", ge=0)
    replay_capacity: int = param(50_000, "transitions kept", ge=1, le=10**9)
    replay_device: Literal["host", "device"] = param(
        "host", "where they are kept: in the learner's memory, or on its device (GPU)"
    )
    n_step: int = param(1, "rewards summed before the target bootstraps", ge=1, le=10**6)
    priority_scale: float = param(
        0.0, "exponent of the priority of a transition in the replay; 0: all alike", ge=0, le=1
    )
    priority_beta: float = param(
        0.4, "exponent of the importance weights at the start; 1 after priority_updates", ge=0, le=1
    )
    priority_updates: int = param(100_000, "updates until the importance weights are whole", ge=1)
    tau: float = param(0.005, "soft target update after each update; 0: periodic copy", ge=0, le=1)
    target_update_interval: int = param(500, "updates between copies when tau is 0", ge=1)


C_co = TypeVar("C_co", bound=OffPolicyConfig, covariant=True)


@dataclass(frozen=True)
class OffPolicy(Algorithm[C_co]):
    """Learns from transitions, against a target network that lags behind."""

    uses_replay = True

    def n_updates(self, steps: int, made: int) -> int:
        if made < max(self.config.learning_starts, 1):
            return 0
        return max(1, round(steps * float(self.config.updates_per_step)))

    def rows(self, xp: Namespace, hyper: Hyper, block: AnyBlock) -> dict[str, Array]:
        return self.transitions(xp, hyper, block)

    def transitions(self, xp: Namespace, hyper: Hyper, block: AnyBlock) -> dict[str, Array]:
        """The block as independent transitions, [T * B] of each array."""
        rewards, n_step = self.rewards(hyper, block), self.config.n_step
        returns, discounts, last = n_step_returns(
            xp, rewards, block.terminated, block.truncated, hyper["gamma"], n_step
        )
        following = block.next_observations()
        if n_step > 1:
            following = following[last, xp.arange(last.shape[1])]
        arrays = {
            "observation": block.observations[:-1],
            "action": block.actions,
            "reward": returns,
            "discount": discounts,
            "next_observation": following,
        }
        return {name: flat(array) for name, array in arrays.items()}

    def after_update(self, hyper: Hyper, state: TrainState, complete: bool) -> TrainState:
        rate = hyper["tau"]
        if copies(hyper):
            rate = 1.0 * (state.updates % self.config.target_update_interval == 0)
        moved = {k: v + rate * (state.params[k] - v) for k, v in state.target.items()}
        return state._replace(target=moved)


def copies(hyper: Hyper) -> bool:
    """Whether the target is a periodic copy; a rate that is being compiled is some number."""
    return isinstance(hyper["tau"], int | float) and not hyper["tau"]


def beta_after(
    xp: Namespace, config: OffPolicyConfig, hyper: Hyper, updates: float | Array
) -> Array:
    """The exponent of the importance weights after N updates."""
    done = xp.minimum(1.0, updates / config.priority_updates)
    beta: Array = hyper["priority_beta"] + (1 - hyper["priority_beta"]) * done
    return beta


def weighted_mean(values: Array, batch: Batch) -> Array:
    """The mean over a batch, with importance weights where the replay gave some."""
    weights = batch.get("weight")
    return values.mean() if weights is None else (weights * values).mean()
