"""What the agents that learn from a replay share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from exarl.agents.base import Team
from exarl.agents.learned import Learned, LearnedConfig
from exarl.config import param
from exarl.errors import ConfigError
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

    def draws(self, rng: Any, updates: int, batch: int) -> Arrays:
        """Random numbers that the updates need, [updates, batch, ...] each."""
        return {}

    def train(self, block: Block | None, steps: int | None = None) -> dict[str, float]:
        if block is not None:
            self._replay.add(self.rows(block))
            steps = block.steps if steps is None else steps
        assert steps is not None
        self.follow(block)
        self._steps += steps
        if not (updates := self.updates_of(steps, self._steps)):
            return self.report(0, {})
        batches = self._sample(updates) if self._replay.size else None
        index = batches.pop("index", None) if batches else None
        self._learned, metrics = self._update(self._learned, batches, updates)
        self._updates_made += updates
        if "priority" in metrics:
            priorities = np.asarray(metrics.pop("priority"))
            if index is not None:
                self._replay.update(index, priorities)
        return self.report(updates, metrics)

    def updates_of(self, steps: int, made: int) -> int:
        if made < max(self.config.learning_starts, 1):
            return 0
        return max(1, round(steps * float(self.config.updates_per_step)))

    def equipped(self, compiled: Any, state: Any, block: Any) -> Any:
        from exarl.agents import device_replay

        if self.config.priority_scale:
            raise ConfigError("priority_scale must be 0 with a replay on the device")
        like = compiled.jax.eval_shape(lambda block: self.rows(block, compiled.jnp), block)
        return {**state, "replay": device_replay.empty(self.config.replay_capacity, like)}

    def learn(self, compiled: Any, state: Any, block: Any, made: Any, key: Any) -> tuple[Any, Any]:
        from exarl.agents import device_replay

        jax, plan, size = compiled.jax, self.plan(compiled), self.config.batch_size
        ring = device_replay.add(state["replay"], self.rows(block, compiled.jnp))
        updates = self.updates_of(block.steps, self.config.learning_starts + 1)

        def update(learned: Any, key: Any) -> tuple[Any, Any]:
            sampling, drawing = jax.random.split(key)
            batch = device_replay.sample(ring, sampling, (size,))
            drawn = self.draws(compiled.Normals(drawing), 1, size)
            batch |= {name: array[0] for name, array in drawn.items()}
            slope, metrics = plan.gradient(learned, batch)
            return plan.apply(learned, slope), metrics

        def train() -> Any:
            learned, metrics = jax.lax.scan(update, rest, jax.random.split(key, updates))
            return learned, compiled.summarised(metrics)

        def wait() -> Any:
            nothing = jax.eval_shape(train)[1]
            return rest, jax.tree.map(
                lambda a: compiled.jnp.full(a.shape, np.nan, a.dtype), nothing
            )

        rest = {name: part for name, part in state.items() if name != "replay"}
        rest, metrics = compiled.chosen(made >= self.config.learning_starts, train, wait)
        return {**rest, "replay": ring}, metrics

    def _sample(self, updates: int) -> Arrays:
        cfg, shape = self.config, (updates, self._batch_size)
        if cfg.priority_scale:
            done = min(1.0, self._updates_made / cfg.priority_updates)
            beta = cfg.priority_beta + (1 - cfg.priority_beta) * done
            batches: Arrays = self._replay.sample(self._rng, *shape, beta=beta)
        else:
            batches = self._replay.sample(self._rng, *shape)
        return {**batches, **self.draws(self._rng, *shape)}

    def rows(self, block: Block, xp: Any = np) -> Arrays:
        """What the replay keeps of a block."""
        return self.transitions(block, xp)

    def transitions(self, block: Block, xp: Any = np) -> Arrays:
        """The block as independent transitions, [T * B] of each array."""
        cfg = self.config
        returns, discounts, last = n_step_returns(
            xp, self.rewards(block), block.terminated, block.truncated, cfg.gamma, cfg.n_step
        )
        following = block.next_observations()
        if cfg.n_step > 1:
            following = following[last, xp.arange(last.shape[1])]
        arrays = {
            "observation": block.observations[:-1],
            "action": block.actions,
            "reward": returns,
            "discount": discounts,
            "next_observation": following,
        }
        return {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}

    @property
    def copies(self) -> bool:
        """Whether the target is a periodic copy; a rate that is being compiled is some number."""
        return isinstance(self.config.tau, int | float) and not self.config.tau

    def moved_target(self, state: Any, params: Any) -> tuple[Any, Any]:
        """The target network after an update, and the count of updates."""
        cfg, count = self.config, state["count"] + 1
        rate = 1.0 * (count % cfg.target_update_interval == 0) if self.copies else cfg.tau
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
