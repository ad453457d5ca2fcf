"""Proximal policy optimisation with a clipped objective (Schulman et al. 2017, arXiv 1707.06347)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from exarl.agents.onpolicy import OnPolicy, OnPolicyConfig
from exarl.config import param
from exarl.errors import ConfigError
from exarl.types import Arrays, Block


@dataclass(frozen=True)
class PPOConfig(OnPolicyConfig):
    """Parameters of proximal policy optimisation."""

    learning_rate: float = param(3e-4, "step size of the optimiser", gt=0)
    epochs: int = param(10, "passes over a block", ge=1)
    minibatches: int = param(4, "updates in a pass, each with its part of the block", ge=1)
    clip: float = param(0.2, "how far the probability of an action may move in a block", gt=0)
    value_clip: float | None = param(
        None, "how far a value may move in a block; null: anywhere", gt=0
    )
    target_kl: float | None = param(
        None, "stop the passes when the policy has moved so far; null: never", gt=0
    )


class PPO(OnPolicy):
    """Several passes of minibatches over each block, in one compiled call.

    With a network that has memory, a minibatch is some of the environments, each with all its steps.
    """

    Config = PPOConfig
    metrics = ("loss", "policy_loss", "value_loss", "entropy", "kl", "clip_fraction")
    needs_vtrace = True

    def loss(self, compiled: Any, params: Any, batch: Any) -> tuple[Any, Any]:
        """The clipped objective of a minibatch, and its terms."""
        xp, cfg = compiled.jnp, self.config
        outputs, values = self.evaluate(compiled, params, batch)
        log_prob, entropy = self.log_prob_entropy(xp, params, outputs, batch["action"])
        log_ratio = log_prob - batch["log_prob"]
        ratio, advantages = xp.exp(log_ratio), self.advantages(xp, batch)
        clipped = xp.clip(ratio, 1 - cfg.clip, 1 + cfg.clip)
        policy_loss = -xp.minimum(ratio * advantages, clipped * advantages).mean()
        if cfg.value_clip is not None:
            moved = xp.clip(values - batch["value"], -cfg.value_clip, cfg.value_clip)
            values = batch["value"] + moved
        value_loss = self.value_loss(xp, values, batch)
        loss, terms = self.total(policy_loss, value_loss, entropy.mean())
        return loss, {
            **terms,
            "kl": (ratio - 1 - log_ratio).mean(),
            "clip_fraction": (xp.abs(ratio - 1) > cfg.clip).mean(),
        }

    def plan(self, compiled: Any) -> Any:
        optimiser, limit = self.optimiser(compiled), self.config.target_kl

        def learn(state: Any, batch: Any) -> Any:
            slope, metrics = compiled.gradient_of(
                lambda params: self.loss(compiled, params, batch), state["params"]
            )
            return {"params": slope, "kl": metrics["kl"]}, metrics

        def gradient(state: Any, batch: Any) -> Any:
            if limit is None:
                return learn(state, batch)

            def rest() -> tuple[Any, Any]:
                nothing = {name: compiled.jnp.float32(np.nan) for name in self.metrics}
                return compiled.zeros_like(slope_of(state)), nothing

            return compiled.chosen(state["halted"], rest, lambda: learn(state, batch))

        def apply(state: Any, slope: Any) -> Any:
            def move() -> Any:
                return compiled.descend(optimiser, slope["params"], state["opt"], state["params"])

            def stay() -> tuple[Any, Any]:  # counts go on, the same at every learner of a team
                return state["params"], compiled.counted(state["opt"], 1)

            if limit is None:
                params, opt = move()
                return {**state, "params": params, "opt": opt}
            halted = state["halted"] | (slope["kl"] > 1.5 * limit)
            params, opt = compiled.chosen(halted, stay, move)
            return {**state, "params": params, "opt": opt, "halted": halted}

        def slope_of(state: Any) -> Any:
            return {"params": state["params"], "kl": compiled.jnp.float32(0)}

        return compiled.Plan(
            gradient,
            apply,
            prepare=lambda state, inputs: {
                **self.data(compiled, state, {n: a for n, a in inputs.items() if n != "index"}),
                "index": inputs["index"],
            },
            pick=self._pick,
            slope=slope_of,
        )

    def start(self, compiled: Any, params: Arrays) -> dict[str, Any]:
        halted = {} if self.config.target_kl is None else {"halted": np.bool_(False)}
        return {**super().start(compiled, params), **halted}

    def _pick(self, data: Any, i: Any) -> Any:
        """Minibatch i: rows, or with memory whole environments."""
        index = data["index"][i]
        return {
            name: array[:, index]
            if self.memory and not name.startswith("memory/")
            else array[index]
            for name, array in data.items()
            if name != "index"
        }

    def updates_of(self, steps: int, made: int) -> int:
        return int(self.config.epochs * self.config.minibatches)

    def fused(self, compiled: Any, state: Any, block: Any, made: Any, key: Any) -> tuple[Any, Any]:
        index = self._split(lambda count: compiled.orders(key, self.config.epochs, count), block)
        inputs = {**self.inputs(block, compiled.jnp), "index": index}
        updates = self.updates_of(block.steps, 0)
        state, metrics = compiled.scanned(self.plan(compiled), state, inputs, updates)
        return self._fresh(state), metrics

    def _fresh(self, state: Any) -> Any:
        """The next block begins without a stop."""
        return {**state, "halted": state["halted"] & False} if "halted" in state else state

    def train(self, block: Block | None, steps: int | None = None) -> dict[str, Any]:
        self.follow(block)
        self._steps += steps if steps is not None else block.steps if block else 0
        inputs = None
        if block is not None:
            index = self._split(self._orders, block).astype(np.int32)
            inputs = {**self.inputs(block), "index": index}
        updates = self.updates_of(0, self._steps)
        metrics = self.learn(inputs, updates)
        self._learned = self._fresh(self._learned)
        return self.report(updates, metrics)

    def _orders(self, count: int) -> np.ndarray:
        return np.stack([self._rng.permutation(count) for _ in range(self.config.epochs)])

    def _split(self, orders: Callable[[int], Any], block: Any) -> Any:
        """Rows of each update [updates, rows], from ``orders`` [epochs, count] of all that there are;
        a remainder waits for the next epoch."""
        cfg = self.config
        count = block.rewards.shape[1] if self.memory else block.steps
        size = count // cfg.minibatches
        if not size:
            what = "environments" if self.memory else "steps"
            raise ConfigError(
                f"minibatches={cfg.minibatches} needs as many {what} in a block, not {count}"
            )
        return orders(count)[:, : size * cfg.minibatches].reshape(-1, size)
