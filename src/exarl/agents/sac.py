"""Soft actor-critic with automatic temperature, for continuous and for discrete actions.

Haarnoja et al. 2018 (arXiv 1812.05905); discrete: Christodoulou 2019 (arXiv 1910.07207).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from exarl.agents.acting import Acting
from exarl.agents.base import MakeNetwork, Network
from exarl.agents.ddpg import check_bounded
from exarl.agents.offpolicy import OffPolicy, OffPolicyConfig, weighted_mean
from exarl.config import param
from exarl.learning import losses
from exarl.learning.distributions import categorical_sample, log_softmax, squashed_log_prob
from exarl.learning.exploration import either
from exarl.types import Arrays, EnvSpec

LOG_STD_MIN, LOG_STD_MAX = -10.0, 2.0


@dataclass(frozen=True)
class SACConfig(OffPolicyConfig):
    """Parameters of the soft actor-critic."""

    learning_rate: float = param(3e-4, "step size of the optimiser", gt=0)
    batch_size: int = param(256, "transitions in an update", ge=1, le=10**6)
    replay_capacity: int = param(1_000_000, "transitions kept", ge=1, le=10**9)
    max_grad_norm: float | None = param(None, "clip the gradient's norm; null: do not", gt=0)
    alpha: float = param(1.0, "temperature (weight of the entropy) at the start", gt=0)
    learn_alpha: bool = param(True, "let the temperature follow the target entropy")
    target_entropy: float | None = param(
        None, "entropy to hold; null: -dimensions, or for discrete actions 0.5 x the largest"
    )


class SAC(OffPolicy):
    """Maximises reward and entropy. The first ``learning_starts`` steps act uniformly at random."""

    Config = SACConfig
    action_kind = "any"
    metrics = ("critic_loss", "policy_loss", "q_mean", "td_error", "alpha", "entropy")
    critics = ("q1", "q2")

    def __init__(self, spec: EnvSpec, config: SACConfig, network: MakeNetwork, seed: int) -> None:
        self.discrete = spec.n_actions is not None
        if not self.discrete:
            check_bounded(spec, "SAC-v0")
        self.size = spec.n_actions or int(np.prod(spec.action.shape))
        largest = 0.5 * math.log(self.size) if self.discrete else -float(self.size)
        self.target_entropy = largest if config.target_entropy is None else config.target_entropy
        self.greedy, self.squashed = slice(self.size), not self.discrete
        super().__init__(spec, config, network, seed)

    def make_networks(self, make: MakeNetwork) -> dict[str, Network]:
        if self.discrete:
            return {name: make(self.size) for name in ("policy", *self.critics)}
        return {"policy": make(2 * self.size)} | {
            name: make(1, extra=self.size) for name in self.critics
        }

    def other_params(self) -> Arrays:
        return {"log_alpha": np.array(math.log(self.config.alpha), np.float32)}

    def schedules(self, steps: Any, xp: Any = np) -> dict[str, Any]:
        return {"random": xp.where(steps < self.config.learning_starts, 1.0, 0.0)}

    def report(self, updates: int, metrics: Any) -> dict[str, Any]:
        reported = super().report(updates, metrics)
        reported.pop("random")
        return reported

    # -- acting ---------------------------------------------------------------------------------

    def act(
        self, xp: Any, acting: Acting, observations: Any, rng: Any, memory: Any
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        def learned() -> Any:
            return self.outputs(xp, acting, "policy", observations)[0]

        def drawn() -> Any:
            mean, log_std = self._gaussian(xp, learned())
            return xp.tanh(mean + xp.exp(log_std) * rng.normal(self.size))

        shape = (len(observations), *self.spec.action.shape)
        if rng is None:
            outputs = learned()
            if self.discrete:
                return outputs.argmax(-1), {}, {}
            return xp.tanh(self._gaussian(xp, outputs)[0]).reshape(shape), {}, {}
        random = acting["now"]["random"] > 0  # as long as nothing is learned
        if self.discrete:
            logits = learned() * (1 - random)
            return categorical_sample(xp, logits, rng.uniform(1)[:, 0]), {}, {}
        actions = either(xp, random, lambda: 2 * rng.uniform(self.size) - 1, drawn)
        return actions.astype(np.float32).reshape(shape), {}, {}

    def _gaussian(self, xp: Any, outputs: Any) -> tuple[Any, Any]:
        mean, log_std = outputs[..., : self.size], outputs[..., self.size :]
        return mean, xp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)

    # -- learning -------------------------------------------------------------------------------

    def policy(self, xp: Any, params: Any, observations: Any, noise: Any) -> tuple[Any, Any]:
        """Continuous: actions [N, A] and their log-probabilities [N]. Discrete: probabilities
        [N, A] and their logarithms [N, A]."""
        network, own = self.networks["policy"], self.part(params, "policy")
        outputs = network.apply(xp, own, observations)
        if self.discrete:
            log_p = log_softmax(xp, outputs)
            return xp.exp(log_p), log_p
        mean, log_std = self._gaussian(xp, outputs)
        before = mean + xp.exp(log_std) * noise
        return xp.tanh(before), squashed_log_prob(xp, noise, log_std, before)

    def least_q(self, xp: Any, critics: Any, observations: Any, actions: Any) -> Any:
        """The lesser critic's values: [N] of actions, or of all of them [N, A] if discrete."""
        extra = None if self.discrete else actions
        values = [
            self.networks[name].apply(xp, self.part(critics, name), observations, extra)
            for name in self.critics
        ]
        least = xp.minimum(*values)
        return least if self.discrete else least[:, 0]

    def soft_value(self, xp: Any, actions: Any, log_p: Any, q: Any, alpha: Any) -> tuple[Any, Any]:
        """Expected value with the entropy's bonus [N], and the entropy [N]."""
        if self.discrete:  # ``actions`` are probabilities: the expectation is exact
            return (actions * (q - alpha * log_p)).sum(-1), -(actions * log_p).sum(-1)
        return q - alpha * log_p, -log_p

    def targets(self, xp: Any, state: Any, batch: Any) -> Any:
        """Soft Bellman targets [N]."""
        params, following = state["params"], batch["next_observation"]
        actions, log_p = self.policy(xp, params, following, batch.get("next_noise"))
        q = self.least_q(xp, state["target"], following, actions)
        value, _ = self.soft_value(xp, actions, log_p, q, xp.exp(params["log_alpha"]))
        return batch["reward"] + batch["discount"] * value

    def loss(self, xp: Any, params: Any, fixed: Any, batch: Any, targets: Any) -> tuple[Any, Any]:
        """The losses of critics, policy and temperature in one sum; each sees the others as they
        are in ``fixed``, so that its gradient is its own."""
        observations, actions = batch["observation"], batch["action"]
        extra = None if self.discrete else actions.reshape(len(actions), -1)
        values = [
            self.networks[name].apply(xp, self.part(params, name), observations, extra)
            for name in self.critics
        ]
        values = [losses.select(xp, q, actions) if self.discrete else q[:, 0] for q in values]
        critic_loss = sum(weighted_mean(losses.squared(xp, targets - q), batch) for q in values)
        alpha = xp.exp(fixed["log_alpha"])
        chosen, log_p = self.policy(xp, params, observations, batch.get("noise"))
        q = self.least_q(xp, fixed, observations, chosen)
        value, entropy = self.soft_value(xp, chosen, log_p, q, alpha)
        policy_loss = -value.mean()
        surplus = entropy.mean() - self.target_entropy
        sizes = xp.abs(targets - values[0])
        metrics = {
            "critic_loss": critic_loss,
            "policy_loss": policy_loss,
            "q_mean": values[0].mean(),
            "td_error": sizes.mean(),
            "alpha": alpha,
            "entropy": entropy.mean(),
        } | ({"priority": sizes} if "weight" in batch else {})
        return (critic_loss + policy_loss, surplus), metrics

    def plan(self, compiled: Any) -> Any:
        xp, optimiser = compiled.jnp, self.optimiser(compiled)

        def gradient(state: Any, batch: Any) -> Any:
            batch = self.normal_batch(xp, state, batch)
            targets = self.targets(xp, state, batch)
            fixed = state["params"]

            def loss(params: Any) -> tuple[Any, Any]:
                (value, surplus), metrics = self.loss(xp, params, fixed, batch, targets)
                if self.config.learn_alpha:
                    value = value + params["log_alpha"] * compiled.constant(surplus)
                return value, metrics

            return compiled.gradient_of(loss, state["params"])

        def apply(state: Any, slope: Any) -> Any:
            params, opt = compiled.descend(optimiser, slope, state["opt"], state["params"])
            target, count = self.moved_target(state, params)
            return {**state, "params": params, "target": target, "opt": opt, "count": count}

        return compiled.Plan(gradient, apply)

    def start(self, compiled: Any, params: Arrays) -> dict[str, Any]:
        critics = {n: a for n, a in params.items() if n.startswith(self.critics)}
        return {**super().start(compiled, params), "target": critics, "count": np.int32(0)}

    def draws(self, rng: Any, updates: int, batch: int) -> Arrays:
        if self.discrete:
            return {}
        shape = (updates, batch, self.size)
        return {name: rng.standard_normal(shape, np.float32) for name in ("noise", "next_noise")}
