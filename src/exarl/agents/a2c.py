"""Advantage actor-critic, synchronous (A2C) or asynchronous (A3C): Mnih et al. 2016, arXiv 1602.01783.

The mathematics is one; which of the two it is, the workflow says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from exarl.agents.onpolicy import OnPolicy, OnPolicyConfig
from exarl.config import param
from exarl.types import Block


@dataclass(frozen=True)
class A2CConfig(OnPolicyConfig):
    """Parameters of the advantage actor-critic."""

    learning_rate: float = param(7e-4, "step size of the optimiser", gt=0)
    normalize_advantages: bool = param(False, "advantages of a batch with mean 0 and deviation 1")


class A2C(OnPolicy):
    """One update from each block."""

    Config = A2CConfig
    metrics = ("loss", "policy_loss", "value_loss", "entropy")

    def loss(self, compiled: Any, params: Any, batch: Any) -> tuple[Any, Any]:
        """The whole loss of a block, and its terms."""
        xp = compiled.jnp
        outputs, values = self.evaluate(compiled, params, batch)
        log_prob, entropy = self.log_prob_entropy(xp, params, outputs, batch["action"])
        policy_loss = -(log_prob * self.advantages(xp, batch)).mean()
        return self.total(policy_loss, self.value_loss(xp, values, batch), entropy.mean())

    def plan(self, compiled: Any) -> Any:
        optimiser = self.optimiser(compiled)

        def gradient(state: Any, batch: Any) -> Any:
            return compiled.gradient_of(
                lambda params: self.loss(compiled, params, batch), state["params"]
            )

        def apply(state: Any, slope: Any) -> Any:
            params, opt = compiled.descend(optimiser, slope, state["opt"], state["params"])
            return {**state, "params": params, "opt": opt}

        return compiled.Plan(
            gradient,
            apply,
            prepare=lambda state, inputs: self.data(compiled, state, inputs),
            pick=lambda data, i: data,
        )

    def updates_of(self, steps: int, made: int) -> int:
        return 1

    def fused(self, compiled: Any, state: Any, block: Any, made: Any, key: Any) -> tuple[Any, Any]:
        inputs = self.inputs(block, compiled.jnp)
        state, metrics = compiled.scanned(self.plan(compiled), state, inputs, 1)
        return state, metrics

    def train(self, block: Block | None, steps: int | None = None) -> dict[str, Any]:
        self.follow(block)
        self._steps += steps if steps is not None else block.steps if block else 0
        inputs = None if block is None else self.inputs(block)
        return self.report(1, self.learn(inputs, 1))
