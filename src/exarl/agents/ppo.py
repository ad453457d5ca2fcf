"""Proximal policy optimisation with a clipped objective (Schulman et al. 2017, arXiv 1707.06347)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from exarl.agents.agent import NetworkAgent
from exarl.agents.algorithm import EarlyStop, Hyper, TrainState
from exarl.agents.base import MakeNetwork
from exarl.agents.onpolicy import (
    ON_POLICY_DEFAULTS,
    ActorCritic,
    OnPolicyConfig,
    mean,
    networks_for,
    total,
    value_loss,
)
from exarl.agents.passes import minibatches_of, parts_of
from exarl.config import param
from exarl.errors import ConfigError
from exarl.types import Array, Batch, EnvSpec, Metrics, Namespace, Params

MINIBATCH = 64
"""Steps in a minibatch, unless their number is given."""


@dataclass(frozen=True)
class PPOConfig(OnPolicyConfig):
    """Parameters of proximal policy optimisation."""

    learning_rate: float = param(3e-4, "step size of the optimiser", gt=0)
    normalize_observations: bool = param(
        True,
        "observations as deviations from their running mean, in standard deviations; images are left"
        " as they are",
    )
    normalize_rewards: bool = param(
        True,
        "divide rewards by the running standard deviation of the discounted return, before"
        " reward_scale and reward_clip",
    )
    epochs: int = param(10, "passes over a block", ge=1)
    minibatches: int | None = param(
        None,
        f"updates in a pass, each with its part of the block; null: as many as give each {MINIBATCH}"
        " steps, or one with a network that has memory",
        ge=1,
    )
    clip: float = param(0.2, "how far the probability of an action may move in a block", gt=0)
    value_clip: float | None = param(
        None, "how far a value may move in a block; null: anywhere", gt=0
    )
    target_kl: float | None = param(
        None, "stop the passes when the policy has moved so far; null: never", gt=0
    )


@dataclass(frozen=True)
class ProximalPolicy(ActorCritic[PPOConfig]):
    """Several passes of minibatches over each block.

    With a network that has memory, a minibatch is some of the environments, each with all its steps.
    """

    terms = (*ActorCritic.terms, "kl", "clip_fraction")

    def loss(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        """The clipped objective of a minibatch, and its terms."""
        outputs, values = self.evaluate(xp, params, batch)
        log_prob, entropy = self.log_prob_entropy(xp, params, outputs, batch["action"])
        log_ratio, clip = log_prob - batch["log_prob"], hyper["clip"]
        ratio, advantages = xp.exp(log_ratio), self.advantages(xp, batch)
        clipped = xp.clip(ratio, 1 - clip, 1 + clip)
        policy_loss = -mean(xp.minimum(ratio * advantages, clipped * advantages), batch)
        if (limit := hyper.get("value_clip")) is not None:
            values = batch["value"] + xp.clip(values - batch["value"], -limit, limit)
        loss, terms = total(hyper, policy_loss, value_loss(values, batch), mean(entropy, batch))
        return loss, {
            **terms,
            "kl": mean(ratio - 1 - log_ratio, batch),
            "clip_fraction": mean(xp.abs(ratio - 1) > clip, batch),
        }

    def halt(self, hyper: Hyper) -> EarlyStop | None:
        limit = hyper.get("target_kl")
        return None if limit is None else EarlyStop("kl", 1.5 * limit)

    def n_updates(self, steps: int, made: int) -> int:
        return self.config.epochs * self._minibatches(steps)

    def _minibatches(self, steps: int) -> int:
        """Those of a pass over a block of ``steps`` steps."""
        size = steps if self.memory else MINIBATCH
        return minibatches_of(steps, self.config.minibatches, size)

    def passes(self, rows: Batch) -> tuple[int, int]:
        """ConfigError when a block has fewer rows than there are minibatches."""
        steps, width = rows["reward"].shape
        count = width if self.memory else steps * width
        if count < (self.config.minibatches or 1):
            what = "environments" if self.memory else "steps"
            raise ConfigError(
                f"minibatches={self.config.minibatches} needs as many {what} in a block, not {count}"
            )
        return self.config.epochs, count

    def split(self, orders: Array, updates: int) -> Array:
        return parts_of(orders, updates)

    def prepare(self, xp: Namespace, hyper: Hyper, state: TrainState, batch: Batch) -> Batch:
        rows = {name: array for name, array in batch.items() if name != "index"}
        return {**super().prepare(xp, hyper, state, rows), "index": batch["index"]}

    def minibatch(self, data: Batch, update: int | Array) -> Batch:
        """Rows, or with memory whole environments."""
        index = data["index"][update]
        return {
            name: array[:, index]
            if self.memory and not name.startswith("memory/")
            else array[index]
            for name, array in data.items()
            if name != "index"
        }


def make(spec: EnvSpec, config: PPOConfig, network: MakeNetwork) -> ProximalPolicy:
    """The algorithm for an environment."""
    return ProximalPolicy(spec, config, networks_for(spec, config, network))


class PPO(NetworkAgent[PPOConfig]):
    """Proximal policy optimisation."""

    Config = PPOConfig
    defaults: ClassVar[Mapping[str, Any]] = {**ON_POLICY_DEFAULTS, "block_steps": 2048}
    action_kind = "any"
    factors_actions = respects_masks = mixes_actions = True
    metrics = ProximalPolicy.terms
    needs_vtrace = True
    make_algorithm = staticmethod(make)
