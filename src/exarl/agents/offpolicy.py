"""What the agents that learn from a replay share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from exarl.agents.base import Team
from exarl.agents.learned import Learned, LearnedConfig
from exarl.config import param
from exarl.learning.returns import n_step_returns
from exarl.replay import PrioritisedReplay, UniformReplay
from exarl.types import Arrays, Block


@dataclass(frozen=True)
class OffPolicyConfig(LearnedConfig):
    """Parameters of the agents that learn from a replay."""

    batch_size: int = param(64, "transitions in an update", ge=1, le=10**6)
    updates_per_step: float = param(
        1.0, "updates per environment step, rounded to whole updates a block", gt=0, le=10**4
    )
    learning_starts: int = param(1000, "environment steps before the first update", ge=0)
    replay_capacity: int = param(50_000, "transitions kept", ge=1, le=10**9)
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


class OffPolicy(Learned):
    """Keeps transitions and makes the updates of a block in one compiled call.

    All batches of a block are drawn before its first update, and priorities set after its last.
    """

    def set_learner(self, team: Team | None = None) -> None:
        super().set_learner(team)
        cfg = self.config
        self._batch_size = max(1, cfg.batch_size // (team.size if team else 1))
        self._replay = self._make_replay()
        self._updates_made = 0

    def _make_replay(self) -> Any:
        cfg = self.config
        if cfg.priority_scale:
            return PrioritisedReplay(cfg.replay_capacity, cfg.priority_scale)
        return UniformReplay(cfg.replay_capacity)

    def draws(self, rng: np.random.Generator, updates: int, batch: int) -> Arrays:
        """Random numbers that the updates need, [updates, batch, ...] each."""
        return {}

    def train(self, block: Block | None, steps: int | None = None) -> dict[str, float]:
        if block is not None:
            self._replay.add(self.rows(block))
            steps = block.steps if steps is None else steps
        assert steps is not None
        self.follow(block)
        self._steps += steps
        if self._steps < max(self.config.learning_starts, 1):
            return self.report(0, {})
        updates = max(1, round(steps * self.config.updates_per_step))
        batches = self._sample(updates) if self._replay.size else None
        index = batches.pop("index", None) if batches else None
        self._learned, metrics = self._update(self._learned, batches, updates)
        self._updates_made += updates
        if "priority" in metrics:
            priorities = np.asarray(metrics.pop("priority"))
            if index is not None:
                self._replay.update(index, priorities)
        return self.report(updates, metrics)

    def _sample(self, updates: int) -> Arrays:
        cfg, shape = self.config, (updates, self._batch_size)
        if cfg.priority_scale:
            done = min(1.0, self._updates_made / cfg.priority_updates)
            beta = cfg.priority_beta + (1 - cfg.priority_beta) * done
            batches: Arrays = self._replay.sample(self._rng, *shape, beta=beta)
        else:
            batches = self._replay.sample(self._rng, *shape)
        return {**batches, **self.draws(self._rng, *shape)}

    def rows(self, block: Block) -> Arrays:
        """What the replay keeps of a block."""
        return self.transitions(block)

    def transitions(self, block: Block) -> Arrays:
        """The block as independent transitions, [T * B] of each array."""
        cfg = self.config
        returns, discounts, last = n_step_returns(
            np, self.rewards(block), block.terminated, block.truncated, cfg.gamma, cfg.n_step
        )
        following = block.next_observations()
        if cfg.n_step > 1:
            following = following[last, np.arange(last.shape[1])]
        arrays = {
            "observation": block.observations[:-1],
            "action": block.actions,
            "reward": returns,
            "discount": discounts,
            "next_observation": following,
        }
        return {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}

    def moved_target(self, state: Any, params: Any) -> tuple[Any, Any]:
        """The target network after an update, and the count of updates."""
        cfg, count = self.config, state["count"] + 1
        rate = cfg.tau if cfg.tau else 1.0 * (count % cfg.target_update_interval == 0)
        return {k: v + rate * (params[k] - v) for k, v in state["target"].items()}, count

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        arrays, numbers = super().state()
        replay = {f"replay/{name}": array for name, array in self._replay.state().items()}
        return {**arrays, **replay}, {**numbers, "updates": self._updates_made}

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        super().restore(arrays, numbers)
        self._updates_made = numbers["updates"]
        self._replay.restore(
            {n.removeprefix("replay/"): a for n, a in arrays.items() if n.startswith("replay/")}
        )


def weighted_mean(values: Any, batch: Any) -> Any:
    """The mean over a batch, with importance weights where the replay gave some."""
    weights = batch.get("weight")
    return values.mean() if weights is None else (weights * values).mean()
