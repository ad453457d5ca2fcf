"""Truncated quantile critics (Kuznetsov et al. 2020, arXiv 2005.04269)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from exarl.agents.agent import NetworkAgent
from exarl.agents.algorithm import Acting, Hyper, Loss, Noise, Normals, TrainState
from exarl.agents.base import MakeNetwork
from exarl.agents.blocks import AnyBlock
from exarl.agents.critics import CLIMBED, LEARNED, TARGET, critic_names
from exarl.agents.ddpg import check_bounded
from exarl.agents.offpolicy import OffPolicy, weighted_mean
from exarl.agents.sac import SAC, SoftActorCritic, SoftConfig, check_soft
from exarl.config import param
from exarl.errors import ConfigError
from exarl.learning.losses import quantile_huber
from exarl.types import Array, Arrays, ArraySpec, Batch, EnvSpec, Memory, Metrics, Namespace, Params


@dataclass(frozen=True)
class TQCConfig(SoftConfig):
    """Parameters of truncated quantile critics."""

    quantiles: int = param(25, "quantiles of the return that each critic learns", ge=1, le=10_000)
    quantiles_dropped: int = param(
        2, "the largest quantiles, for each critic, that a target leaves out", ge=0
    )


@dataclass(frozen=True)
class TruncatedQuantiles(OffPolicy[TQCConfig]):
    """Soft actor-critic whose critics learn the distribution of the return. The quantiles of all of
    them make the target, without the largest."""

    soft: SoftActorCritic
    """What acts, the policy and the temperature."""

    squashed = True
    drops_out = True

    def init(self, rng: np.random.Generator, hyper: Hyper) -> Arrays:
        return self.soft.init(rng, hyper)

    def target(self, params: Params) -> Params:
        return self.soft.target(params)

    @property
    def recorded(self) -> Mapping[str, ArraySpec]:
        return self.soft.recorded

    @property
    def greedy(self) -> slice:
        return self.soft.greedy

    def schedules(self, xp: Namespace, hyper: Hyper, steps: float | Array) -> dict[str, Array]:
        return self.soft.schedules(xp, hyper, steps)

    def act(
        self,
        xp: Namespace,
        hyper: Hyper,
        acting: Acting,
        observations: Array,
        rng: Noise | None,
        memory: Memory | None,
    ) -> tuple[Array, dict[str, Array], Memory]:
        return self.soft.act(xp, hyper, acting, observations, rng, memory)

    def rows(self, xp: Namespace, hyper: Hyper, block: AnyBlock) -> dict[str, Array]:
        return self.soft.rows(xp, hyper, block)

    def draws(self, rng: Normals, updates: int, batch: int) -> dict[str, Array]:
        return self.soft.draws(rng, updates, batch)

    @property
    def losses(self) -> tuple[Loss, ...]:
        return self.soft.losses_with(self.critic_loss, self.policy_loss)

    def critic_loss(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        """The quantile Huber losses of all critics; the metrics are of the first one's mean."""
        targets = self.targets(xp, state.params, state.target, batch)
        observations, actions = batch["observation"], batch["action"]
        actions = actions.reshape(len(actions), -1)
        found = self.soft.critics.outputs(xp, params, batch, LEARNED, observations, actions)
        penalties = [quantile_huber(xp, quantiles, targets) for quantiles in found]
        value: Array = sum(weighted_mean(penalty, batch) for penalty in penalties)  # type: ignore[assignment]
        sizes = xp.abs(targets.mean(-1) - found[0].mean(-1))
        metrics: Metrics = {
            "critic_loss": value,
            "q_mean": found[0].mean(),
            "td_error": sizes.mean(),
        }
        return value, metrics | ({"priority": sizes} if "weight" in batch else {})

    def policy_loss(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        """The soft value of the policy's actions by the mean of all quantiles, to be climbed."""

        def rate(actions: Array) -> Array:
            observations = batch["observation"]
            found = self.soft.critics.outputs(xp, params, batch, CLIMBED, observations, actions)
            value: Array = xp.stack(found).mean((0, -1))
            return value

        return self.soft.loss_of_policy(xp, params, batch, rate)

    def clone_loss(self, xp: Namespace, hyper: Hyper, params: Params, batch: Batch) -> Array:
        """Minus the mean log-likelihood of the actions."""
        return self.soft.clone_loss(xp, hyper, params, batch)

    def targets(self, xp: Namespace, params: Params, target: Params, batch: Batch) -> Array:
        """Soft Bellman targets [N, L]: the quantiles of all target critics but the largest."""
        following = batch["next_observation"]
        actions, log_p = self.soft.policy(xp, params, following, batch.get("next_noise"))
        found = self.soft.critics.outputs(xp, target, batch, TARGET, following, actions)
        kept = self.config.critics * (self.config.quantiles - self.config.quantiles_dropped)
        quantiles = xp.sort(xp.concatenate(found, -1), -1)[:, :kept]
        values = quantiles - (xp.exp(params["log_alpha"]) * log_p)[:, None]
        return batch["reward"][:, None] + batch["discount"][:, None] * values


def make(spec: EnvSpec, config: TQCConfig, network: MakeNetwork) -> TruncatedQuantiles:
    """The algorithm for an environment; ConfigError when it cannot learn there."""
    check_bounded(spec, "TQC-v0")
    check_soft(config)
    if config.quantiles_dropped >= config.quantiles:
        raise ConfigError(
            f"quantiles_dropped={config.quantiles_dropped} leaves none of quantiles={config.quantiles}"
        )
    size, critics = spec.action_size, critic_names(config.critics)
    networks = {"policy": network(2 * size)}
    networks |= {name: network(config.quantiles, extra=size) for name in critics}
    soft = SoftActorCritic(spec, config, networks, in_target=config.critics)
    return TruncatedQuantiles(spec, config, networks, soft)


class TQC(NetworkAgent[TQCConfig]):
    """Truncated quantile critics."""

    Config = TQCConfig
    defaults: ClassVar[Mapping[str, Any]] = SAC.defaults
    action_kind = "continuous"
    metrics = SAC.metrics
    make_algorithm = staticmethod(make)
