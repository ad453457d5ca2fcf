"""Soft actor-critic with automatic temperature, for continuous and for discrete actions.

Haarnoja et al. 2018 (arXiv 1812.05905); discrete: Christodoulou 2019 (arXiv 1910.07207). With more
critics, of which a few make a target, it is REDQ, and with dropout DroQ (see ``critics.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, ClassVar, Literal

import numpy as np

from exarl.agents.agent import NetworkAgent
from exarl.agents.algorithm import (
    Acting,
    Hyper,
    Loss,
    Noise,
    Normals,
    TrainState,
    Value,
    flat,
    group,
)
from exarl.agents.base import MakeNetwork
from exarl.agents.blocks import AnyBlock
from exarl.agents.constraints import COSTS, Constraints
from exarl.agents.critics import (
    CLIMBED,
    LEARNED,
    TARGET,
    Critics,
    check_subset,
    critic_names,
)
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
INSIDE = 0.999
"""The largest action that cloning asks for."""


@dataclass(frozen=True)
class SoftConfig(OffPolicyConfig):
    """Parameters of the algorithms that maximise reward and entropy."""

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
        (),
        "limits on numbers in info: on their sums over an episode, as in 'cost<=25', or their means per"
        " step, as in 'mean(cost)<=0.1'",
    )
    constraint_rate: float = param(
        0.1,  # blocks are short, and each moves the multipliers
        "how far a constraint's multiplier moves in a block whose episodes are beyond by a limit",
        gt=0,
    )
    constraint_damping: float = param(
        1.0, "how much higher a multiplier is while episodes are beyond by a limit", ge=0
    )
    critics: int = param(2, "how many critics there are", ge=1, le=1000)
    policy_delay: int = param(
        1, "critic updates for each update of the policy and the temperature", ge=1
    )


@dataclass(frozen=True)
class SACConfig(SoftConfig):
    """Parameters of the soft actor-critic."""

    critics_in_target: int = param(
        2, "critics, drawn at random for each update, of which the least is the target", ge=1
    )
    policy_value: Literal["least", "mean"] = param(
        "least", "which value of all critics the policy climbs"
    )


@dataclass(frozen=True)
class SoftActorCritic(OffPolicy[SoftConfig]):
    """Maximises reward and entropy. The first ``learning_starts`` steps act uniformly at random."""

    in_target: int = 2
    """Critics, drawn at random for each update, that make a target."""
    climbs_mean: bool = False
    """Whether the policy climbs the mean of the critics, and not the least."""

    drops_out = True

    @cached_property
    def critics(self) -> Critics:
        names = critic_names(self.config.critics)
        return Critics({name: self.networks[name] for name in names}, self.in_target)

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
        return group(params, tuple(self.critics.networks))

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
        return self.losses_with(self.critic_loss, self.policy_loss)

    def losses_with(self, critic_loss: Value, policy_loss: Value) -> tuple[Loss, ...]:
        """Each has an optimiser of its own, and sees the parameters of the others as they are."""
        critic = ("critic_loss", "q_mean", "td_error")
        policy = ("policy_loss", "alpha", "entropy")
        rates, delay = (
            ("policy_learning_rate", "temperature_learning_rate"),
            self.config.policy_delay,
        )
        temperature = Loss(
            ("log_alpha",), self.temperature_loss, (), "temperature", rates[1], delay
        )
        return (
            Loss(tuple(self.critics.networks), critic_loss, critic, "critics"),
            Loss(("policy",), policy_loss, policy, "policy", rates[0], delay),
            *((temperature,) if self.config.learn_alpha else ()),
        )

    def critic_loss(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        """Squared errors of all critics, and the metrics of the first."""
        targets = self.targets(xp, state.params, state.target, batch)
        observations, actions = batch["observation"], batch["action"]
        extra = None if self.discrete else actions.reshape(len(actions), -1)
        values = self.critics.outputs(xp, params, batch, LEARNED, observations, extra)
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
        """The soft value of the policy's actions by the least critic or their mean, to be climbed;
        importance weights are for the critics, see ``weighted_mean``."""

        def rate(actions: Array) -> Array:
            q = self.q_values(xp, params, batch, CLIMBED, batch["observation"], actions)
            value: Array = xp.stack(q).mean(0) if self.climbs_mean else _least(xp, q)
            return value

        return self.loss_of_policy(xp, params, batch, rate)

    def loss_of_policy(
        self, xp: Namespace, params: Params, batch: Batch, rate: Callable[[Array], Array]
    ) -> tuple[Array, Metrics]:
        """The soft value of the policy's actions, which ``rate`` gives values."""
        alpha = xp.exp(params["log_alpha"])
        actions, log_p = self.policy(xp, params, batch["observation"], batch.get("noise"))
        value, entropy = self.soft_value(xp, actions, log_p, rate(actions), alpha)
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
        q = _least(xp, self.q_values(xp, target, batch, TARGET, following, actions))
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

    def clone_loss(self, xp: Namespace, hyper: Hyper, params: Params, batch: Batch) -> Array:
        """Minus the mean log-likelihood of the actions."""
        outputs, actions = self.apply(xp, params, "policy", batch["observation"]), batch["action"]
        if self.discrete:
            log_p = log_softmax(xp, self.among(xp, outputs, batch["observation"]))
            return -losses.select(xp, log_p, actions).mean()
        mean, log_std = self._gaussian(xp, outputs)
        # An action at a bound, to which tanh only leads at infinity, counts as a little within it.
        before = xp.arctanh(actions.reshape(len(actions), -1).clip(-INSIDE, INSIDE))
        noise = (before - mean) * xp.exp(-log_std)
        return -squashed_log_prob(xp, noise, log_std, before).mean()

    def q_values(
        self,
        xp: Namespace,
        params: Params,
        batch: Batch,
        use: int,
        observations: Array,
        actions: Array,
    ) -> list[Array]:
        """Each critic's values: [N] of actions, or of all of them [N, A] if discrete."""
        extra = None if self.discrete else actions
        values = self.critics.outputs(xp, params, batch, use, observations, extra)
        return values if self.discrete else [q[:, 0] for q in values]

    def soft_value(
        self, xp: Namespace, actions: Array, log_p: Array, q: Array, alpha: Array
    ) -> tuple[Array, Array]:
        """Expected value with the entropy's bonus [N], and the entropy [N]."""
        if self.discrete:  # ``actions`` are probabilities: the expectation is exact
            return (actions * (q - alpha * log_p)).sum(-1), -(actions * log_p).sum(-1)
        return q - alpha * log_p, -log_p

    def draws(self, rng: Normals, updates: int, batch: int) -> dict[str, Array]:
        shape, names = (updates, batch, self.size), ("noise", "next_noise")
        noise = {
            name: rng.standard_normal(shape, np.float32) for name in names if not self.discrete
        }
        return {**noise, **self.critics.draws(rng, updates, batch)}


def _least(xp: Namespace, values: Sequence[Array]) -> Array:
    least: Array = reduce(xp.minimum, values)
    return least


def make(spec: EnvSpec, config: SACConfig, network: MakeNetwork) -> SoftActorCritic:
    """The algorithm for an environment; ConfigError when it cannot learn there."""
    size, critics = spec.action_size, critic_names(config.critics)
    check_soft(config)
    check_subset(config.critics, config.critics_in_target)
    if spec.discrete:
        networks = {name: network(size) for name in ("policy", *critics)}
    else:
        check_bounded(spec, "SAC-v0")
        networks = {"policy": network(2 * size)}
        networks |= {name: network(1, extra=size) for name in critics}
    climbs_mean = config.policy_value == "mean"
    return SoftActorCritic(spec, config, networks, config.critics_in_target, climbs_mean)


def check_soft(config: SoftConfig) -> None:
    """ConfigError when parameters do not go together."""
    if config.constraints and config.n_step > 1:
        raise ConfigError("constraints need n_step 1: costs are learned step by step")


class SAC(NetworkAgent[SACConfig]):
    """Soft actor-critic."""

    Config = SACConfig
    defaults: ClassVar[Mapping[str, Any]] = {"models": {"MLP": {"hidden": (256, 256)}}}
    action_kind = "any"
    respects_masks = True
    metrics = ("critic_loss", "policy_loss", "q_mean", "td_error", "alpha", "entropy")
    make_algorithm = staticmethod(make)
