"""What the agents that learn from a replay share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from exarl.agents.base import Team
from exarl.agents.learned import Learned, LearnedConfig
from exarl.config import param
from exarl.errors import CheckpointError, ConfigError
from exarl.learning.returns import n_step_returns
from exarl.replay import PrioritisedReplay, UniformReplay
from exarl.types import Arrays, Block

LEARNS_ALONE = "replay_device must be host with several learners (learner_procs)"


@dataclass(frozen=True)
class OffPolicyConfig(LearnedConfig):
    """Parameters of the agents that learn from a replay."""

    batch_size: int = param(64, "transitions in an update", ge=1, le=10**6)
    updates_per_step: float = param(
        1.0, "updates per environment step, rounded to whole updates a block", gt=0, le=10**4
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


class OffPolicy(Learned):
    """Keeps transitions and makes the updates of a block in one compiled call.

    All batches of a block are drawn with the priorities before its first update, and priorities set
    after its last.
    """

    def set_learner(self, team: Team | None = None) -> None:
        super().set_learner(team)
        cfg = self.config
        self._batch_size = max(1, cfg.batch_size // (team.size if team else 1))
        self._on_device = cfg.replay_device == "device"
        self._replay = self._make_device_replay() if self._on_device else self._make_replay()
        self._updates_made = 0
        self._rated: Any = None  # rows whose priorities are being computed, and these

    def _make_replay(self) -> Any:
        cfg = self.config
        if cfg.priority_scale:
            return PrioritisedReplay(cfg.replay_capacity, cfg.priority_scale)
        return UniformReplay(cfg.replay_capacity)

    def _make_device_replay(self) -> Any:
        from exarl.agents import compiled
        from exarl.agents.device_learner import DeviceReplay

        cfg = self.config
        if self._team is not None and self._team.size > 1:
            raise ConfigError(LEARNS_ALONE)
        return DeviceReplay(
            self.plan(compiled),
            self._shown_in_order,
            self.draws,
            lambda: self.compiling(),  # noqa: PLW0108  # who shows it is set later
            capacity=cfg.replay_capacity,
            size=self._batch_size,
            alpha=cfg.priority_scale,
            seed=int(self._rng.integers(2**32)),
        )

    def draws(self, rng: Any, updates: int, batch: int) -> Arrays:
        """Random numbers that the updates need, [updates, batch, ...] each.

        With a replay on the device ``rng`` has ``standard_normal`` and nothing else, and this is
        compiled with the updates.
        """
        return {}

    def train(self, block: Block | None, steps: int | None = None) -> dict[str, Any]:
        rows = None
        if block is not None:
            rows = self.rows(block)
            steps = block.steps if steps is None else steps
        assert steps is not None
        self.follow(block)
        self._steps += steps
        if not (updates := self.updates_of(steps, self._steps)):
            self._add(rows)
            return self.report(0, {})
        learn = self._learn_on_device if self._on_device else self._learn_from_host
        metrics = learn(rows, updates)
        self._updates_made += updates
        return self.report(updates, metrics)

    def updates_of(self, steps: int, made: int) -> int:
        if made < max(self.config.learning_starts, 1):
            return 0
        return max(1, round(steps * float(self.config.updates_per_step)))

    def equipped(self, compiled: Any, state: Any, block: Any) -> Any:
        from exarl.agents import device_learner

        cfg = self.config
        like = compiled.jax.eval_shape(lambda block: self.rows(block, compiled.jnp), block)
        store = device_learner.empty(cfg.replay_capacity, like, cfg.priority_scale, seed=0)
        return {**state, "replay": store}

    def fused(self, compiled: Any, state: Any, block: Any, made: Any, key: Any) -> tuple[Any, Any]:
        from exarl.agents import device_learner

        cfg, jax, jnp = self.config, compiled.jax, compiled.jnp
        updates = self.updates_of(block.steps, cfg.learning_starts + 1)
        store = device_learner.added(state["replay"], self.rows(block, jnp))
        draw = partial(device_learner.batch, self.draws, cfg.batch_size)
        first = jax.random.randint(key, (), 0, 2**30)  # of the numbers that the draws follow from
        done = jnp.minimum(1.0, made * cfg.updates_per_step / cfg.priority_updates)
        beta = cfg.priority_beta + (1 - cfg.priority_beta) * done
        rest = {name: part for name, part in state.items() if name != "replay"}

        def train() -> Any:
            learned, priorities, metrics = device_learner.updated(
                self.plan(compiled), draw, cfg.priority_scale, rest, store, first, beta, updates
            )
            return learned, priorities, metrics

        def wait() -> Any:
            *_, nothing = jax.eval_shape(train)
            nan = jax.tree.map(lambda a: jnp.full(a.shape, np.nan, a.dtype), nothing)
            return rest, (store.mass, store.largest), nan

        started = made >= max(cfg.learning_starts, 1)
        rest, (mass, largest), metrics = compiled.chosen(started, train, wait)
        return {**rest, "replay": store._replace(mass=mass, largest=largest)}, metrics

    def _add(self, rows: Arrays | None) -> None:
        self._rate()
        if rows is not None:
            self._replay.add(rows)

    def _learn_on_device(self, rows: Arrays | None, updates: int) -> dict[str, Any]:
        assert rows is not None  # one learner alone always has a block
        number, beta = self._updates_made, self._beta()
        self._learned, metrics = self._replay.learn(self._learned, rows, number, updates, beta)
        return self.took(metrics)

    def _learn_from_host(self, rows: Arrays | None, updates: int) -> dict[str, Any]:
        self._add(rows)
        batches = self._sample(updates) if self._replay.size else None
        index = batches.pop("index", None) if batches else None
        metrics = self.learn(batches, updates)
        if (priorities := metrics.pop("priority", None)) is not None:
            self._rated = (index, priorities)
        return metrics

    def _rate(self) -> None:
        """Set the priorities that the last block's updates found, which waits for them."""
        if self._rated is not None:
            index, priorities = self._rated
            self._rated, found = None, np.asarray(priorities)
            if np.isfinite(found).all():  # else it has diverged, of which the learning loop tells
                self._replay.update(index, found)

    def _beta(self) -> float:
        """The exponent of the importance weights."""
        cfg = self.config
        done = min(1.0, self._updates_made / cfg.priority_updates)
        return float(cfg.priority_beta + (1 - cfg.priority_beta) * done)

    def _sample(self, updates: int) -> Arrays:
        shape = (updates, self._batch_size)
        if self.config.priority_scale:
            batches: Arrays = self._replay.sample(self._rng, *shape, beta=self._beta())
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
        rows: dict[str, Any] = {n: a.reshape(-1, *a.shape[2:]) for n, a in arrays.items()}
        return rows

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
        self._rate()
        arrays, numbers = super().state()
        replay = {f"replay/{name}": array for name, array in self._replay.state().items()}
        return {**arrays, **replay}, {**numbers, "updates": self._updates_made}

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        kept = {n.removeprefix("replay/"): a for n, a in arrays.items() if n.startswith("replay/")}
        if ("seed" in kept) is not self._on_device:
            there = "device" if "seed" in kept else "host"
            raise CheckpointError(
                f"the checkpoint is of a run with replay_device {there}, not"
                f" {self.config.replay_device}"
            )
        super().restore(arrays, numbers)
        self._updates_made, self._rated = numbers["updates"], None
        self._replay.restore(kept)


def weighted_mean(values: Any, batch: Any) -> Any:
    """The mean over a batch, with importance weights where the replay gave some."""
    weights = batch.get("weight")
    return values.mean() if weights is None else (weights * values).mean()
