"""Soft actor-critic with automatic temperature, for continuous and for discrete actions.

Haarnoja et al. 2018 (arXiv 1812.05905); discrete: Christodoulou 2019 (arXiv 1910.07207).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from exarl.agents.agent import NetworkAgent
from exarl.agents.algorithm import (
    Acting,
    Hyper,
    Loss,
    Noise,
    Normals,
    TrainState,
    flat,
    group,
)
from exarl.agents.base import MakeNetwork
from exarl.agents.blocks import AnyBlock
from exarl.agents.constraints import COSTS, Constraints
from exarl.agents.ddpg import check_bounded
from exarl.agents.offpolicy import OffPolicy, OffPolicyConfig, weighted_mean
from exarl.config import param
from exarl.errors import ConfigError
from exarl.learning import losses
from exarl.learning.distributions import (
    categorical_sample,
    log_softmax,
    sample_among,
    squashed_log_prob,
)
from exarl.learning.exploration import either
from exarl.types import Array, Arrays, ArraySpec, Batch, EnvSpec, Memory, Metrics, Namespace, Params

LOG_STD_MIN, LOG_STD_MAX = -10.0, 2.0
CRITICS = ("q1", "q2")


@dataclass(frozen=True)
class SACConfig(OffPolicyConfig):
    """Parameters of the soft actor-critic."""

    learning_rate: float = param(3e-4, "step size of the optimiser", gt=0)
    batch_size: int = param(256, "transitions in an update", ge=1, le=10**6)
    replay_capacity: int = param(1_000_000, "transitions kept", ge=1, le=10**9)
    policy_learning_rate: float | None = param(
        None, "step size of the policy's optimiser; null: learning_rate", gt=0
    )
    temperature_learning_rate: float | None = param(
        None, "step size of the temperature's optimiser; null: learning_rate", gt=0
    )
    max_grad_norm: float | None = param(None, "clip the gradient's norm; null: do not", gt=0)
    alpha: float = param(1.0, "temperature (weight of the entropy) at the start", gt=0)
    learn_alpha: bool = param(True, "let the temperature follow the target entropy")
    target_entropy: float | None = param(
        None, "entropy to hold; null: -dimensions, or for discrete actions 0.5 x the largest"
    )
    constraints: tuple[str, ...] = param(
        (), "limits on sums over an episode of numbers in info, as in 'cost<=25'"
    )
    constraint_rate: float = param(
        0.02,
        "how far a constraint's multiplier moves for each episode that is beyond by a limit",
        gt=0,
    )


@dataclass(frozen=True)
class SoftActorCritic(OffPolicy[SACConfig]):
    """Maximises reward and entropy. The first ``learning_starts`` steps act uniformly at random."""

    @property
    def discrete(self) -> bool:
        return self.spec.discrete

    @property
    def size(self) -> int:
        """Actions to choose from, or dimensions of an action."""
        return self.spec.action_size

    @property
    def greedy(self) -> slice:
        return slice(self.size)

    @property
    def squashed(self) -> bool:
        return not self.discrete

    def init(self, rng: np.random.Generator, hyper: Hyper) -> Arrays:
        log_alpha = np.array(math.log(hyper["alpha"]), np.float32)
        return {**super().init(rng, hyper), "log_alpha": log_alpha}

    @property
    def recorded(self) -> Mapping[str, ArraySpec]:
        return Constraints.of(self.config).recorded

    def target(self, params: Params) -> Params:
        return group(params, CRITICS)

    # -- acting -------------------------------------------------------------------------------------

    def schedules(self, xp: Namespace, hyper: Hyper, steps: float | Array) -> dict[str, Array]:
        return {"random": xp.where(steps < self.config.learning_starts, 1.0, 0.0)}

    def act(
        self,
        xp: Namespace,
        hyper: Hyper,
        acting: Acting,
        observations: Array,
        rng: Noise | None,
        memory: Memory | None,
    ) -> tuple[Array, dict[str, Array], Memory]:
        def learned() -> Array:
            return acting.forward("policy", observations, None)[0]

        shape = (len(observations), *self.spec.action.shape)
        if rng is None:
            outputs = learned()
            if self.discrete:
                return self.among(xp, outputs, observations).argmax(-1), {}, {}
            return xp.tanh(self._gaussian(xp, outputs)[0]).reshape(shape), {}, {}
        random = acting.now["random"] > 0  # as long as nothing is learned
        if self.discrete:
            logits = self.among(xp, learned() * (1 - random), observations)
            draw = categorical_sample if self.spec.mask is None else sample_among
            return draw(xp, logits, rng.uniform(1)[:, 0]), {}, {}

        def drawn() -> Array:
            mean, log_std = self._gaussian(xp, learned())
            actions: Array = xp.tanh(mean + xp.exp(log_std) * rng.normal(self.size))
            return actions

        actions = either(xp, random, lambda: 2 * rng.uniform(self.size) - 1, drawn)
        return actions.astype(np.float32).reshape(shape), {}, {}

    def _gaussian(self, xp: Namespace, outputs: Array) -> tuple[Array, Array]:
        mean, log_std = outputs[..., : self.size], outputs[..., self.size :]
        return mean, xp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)

    # -- learning -----------------------------------------------------------------------------------

    def rows(self, xp: Namespace, hyper: Hyper, block: AnyBlock) -> dict[str, Array]:
        made = super().rows(xp, hyper, block)
        if self.config.constraints:
            made[COSTS] = flat(block.recorded[COSTS][:, :, 0])
        return made

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Each has an optimiser of its own, and sees the parameters of the others as they are."""
        critic = ("critic_loss", "q_mean", "td_error")
        policy = ("policy_loss", "alpha", "entropy")
        temperature = Loss(
            ("log_alpha",), self.temperature_loss, (), "temperature", "temperature_learning_rate"
        )
        return (
            Loss(CRITICS, self.critic_loss, critic, "critics"),
            Loss(("policy",), self.policy_loss, policy, "policy", "policy_learning_rate"),
            *((temperature,) if self.config.learn_alpha else ()),
        )

    def critic_loss(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        """Squared errors of both critics, and the metrics of the first."""
        targets = self.targets(xp, state.params, state.target, batch)
        observations, actions = batch["observation"], batch["action"]
        extra = None if self.discrete else actions.reshape(len(actions), -1)
        values = [self.apply(xp, params, name, observations, extra) for name in CRITICS]
        values = [losses.select(xp, q, actions) if self.discrete else q[:, 0] for q in values]
        value: Array = sum(weighted_mean(losses.squared(xp, targets - q), batch) for q in values)  # type: ignore[assignment]
        sizes = xp.abs(targets - values[0])
        metrics: Metrics = {
            "critic_loss": value,
            "q_mean": values[0].mean(),
            "td_error": sizes.mean(),
        }
        return value, metrics | ({"priority": sizes} if "weight" in batch else {})

    def policy_loss(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        """The soft value of the policy's actions by the lesser critic, to be climbed; importance
        weights are for the critics, see ``weighted_mean``."""
        alpha = xp.exp(params["log_alpha"])
        actions, log_p = self.policy(xp, params, batch["observation"], batch.get("noise"))
        q = self.least_q(xp, params, batch["observation"], actions)
        value, entropy = self.soft_value(xp, actions, log_p, q, alpha)
        loss = -value.mean()
        return loss, {"policy_loss": loss, "alpha": alpha, "entropy": entropy.mean()}

    def temperature_loss(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        """Raises the temperature when the entropy is below its target, and lowers it above."""
        actions, log_p = self.policy(xp, state.params, batch["observation"], batch.get("noise"))
        entropy = -(actions * log_p).sum(-1) if self.discrete else -log_p
        largest = 0.5 * math.log(self.size) if self.discrete else -float(self.size)
        surplus = entropy.mean() - hyper.get("target_entropy", largest)
        return params["log_alpha"] * surplus, {}

    def targets(self, xp: Namespace, params: Params, target: Params, batch: Batch) -> Array:
        """Soft Bellman targets [N]."""
        following = batch["next_observation"]
        actions, log_p = self.policy(xp, params, following, batch.get("next_noise"))
        q = self.least_q(xp, target, following, actions)
        value, _ = self.soft_value(xp, actions, log_p, q, xp.exp(params["log_alpha"]))
        return batch["reward"] + batch["discount"] * value

    def policy(
        self, xp: Namespace, params: Params, observations: Array, noise: Array | None
    ) -> tuple[Array, Array]:
        """Continuous: actions [N, A] and their log-probabilities [N]. Discrete: probabilities
        [N, A] and their logarithms [N, A]."""
        outputs = self.apply(xp, params, "policy", observations)
        if self.discrete:
            log_p = log_softmax(xp, self.among(xp, outputs, observations))
            return xp.exp(log_p), log_p
        assert noise is not None
        return self.squashed_sample(xp, outputs, noise)

    def squashed_sample(self, xp: Namespace, outputs: Array, noise: Array) -> tuple[Array, Array]:
        """Of a continuous policy's outputs: actions [N, A] and their log-probabilities [N]."""
        mean, log_std = self._gaussian(xp, outputs)
        before = mean + xp.exp(log_std) * noise
        return xp.tanh(before), squashed_log_prob(xp, noise, log_std, before)

    def least_q(self, xp: Namespace, critics: Params, observations: Array, actions: Array) -> Array:
        """The lesser critic's values: [N] of actions, or of all of them [N, A] if discrete."""
        extra = None if self.discrete else actions
        values = [self.apply(xp, critics, name, observations, extra) for name in CRITICS]
        least: Array = xp.minimum(*values)
        return least if self.discrete else least[:, 0]

    def soft_value(
        self, xp: Namespace, actions: Array, log_p: Array, q: Array, alpha: Array
    ) -> tuple[Array, Array]:
        """Expected value with the entropy's bonus [N], and the entropy [N]."""
        if self.discrete:  # ``actions`` are probabilities: the expectation is exact
            return (actions * (q - alpha * log_p)).sum(-1), -(actions * log_p).sum(-1)
        return q - alpha * log_p, -log_p

    def draws(self, rng: Normals, updates: int, batch: int) -> dict[str, Array]:
        if self.discrete:
            return {}
        shape = (updates, batch, self.size)
        return {name: rng.standard_normal(shape, np.float32) for name in ("noise", "next_noise")}


def make(spec: EnvSpec, config: SACConfig, network: MakeNetwork) -> SoftActorCritic:
    """The algorithm for an environment; ConfigError when it cannot learn there."""
    size = spec.action_size
    if config.constraints and config.n_step > 1:
        raise ConfigError("constraints need n_step 1: costs are learned step by step")
    if spec.discrete:
        networks = {name: network(size) for name in ("policy", *CRITICS)}
    else:
        check_bounded(spec, "SAC-v0")
        networks = {"policy": network(2 * size)}
        networks |= {name: network(1, extra=size) for name in CRITICS}
    return SoftActorCritic(spec, config, networks)


class SAC(NetworkAgent[SACConfig]):
    """Soft actor-critic."""

    Config = SACConfig
    defaults: ClassVar[Mapping[str, Any]] = {"models": {"MLP": {"hidden": (256, 256)}}}
    action_kind = "any"
    respects_masks = True
    metrics = ("critic_loss", "policy_loss", "q_mean", "td_error", "alpha", "entropy")
    make_algorithm = staticmethod(make)
