"""Advantage actor-critic, synchronous (A2C) or asynchronous (A3C): Mnih et al. 2016, arXiv 1602.01783.

The mathematics is one; the workflow decides which of the two it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from exarl.agents.agent import NetworkAgent
from exarl.agents.algorithm import Hyper, TrainState
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
from exarl.config import param
from exarl.types import Array, Batch, EnvSpec, Metrics, Namespace, Params


@dataclass(frozen=True)
class A2CConfig(OnPolicyConfig):
    """Parameters of the advantage actor-critic."""

    learning_rate: float = param(7e-4, "step size of the optimiser", gt=0)
    normalize_advantages: bool = param(False, "advantages of a batch with mean 0 and deviation 1")


@dataclass(frozen=True)
class AdvantageActorCritic(ActorCritic[A2CConfig]):
    """One update from each block."""

    def loss(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        outputs, values = self.evaluate(xp, params, batch)
        log_prob, entropy = self.log_prob_entropy(xp, params, outputs, batch["action"])
        policy_loss = -mean(log_prob * self.advantages(xp, batch), batch)
        return total(hyper, policy_loss, value_loss(values, batch), mean(entropy, batch))

    def minibatch(self, data: Batch, update: int | Array) -> Batch:
        return data

    def n_updates(self, steps: int, made: int) -> int:
        return 1


def make(spec: EnvSpec, config: A2CConfig, network: MakeNetwork) -> AdvantageActorCritic:
    """The algorithm for an environment."""
    return AdvantageActorCritic(spec, config, networks_for(spec, config, network))


class A2C(NetworkAgent[A2CConfig]):
    """Advantage actor-critic."""

    Config = A2CConfig
    defaults = ON_POLICY_DEFAULTS
    action_kind = "any"
    factors_actions = respects_masks = mixes_actions = True
    metrics = AdvantageActorCritic.terms
    make_algorithm = staticmethod(make)


@dataclass(frozen=True)
class A3CConfig(A2CConfig):
    """Parameters of the asynchronous advantage actor-critic.

    Its actors lag behind the learner. What Adam adds to the root of squared gradients is large, so that
    a coordinate whose gradients are small does not move by whole step sizes on feedback that is late.
    """

    learning_rate: float = param(0.01, "step size of the optimiser", gt=0)
    adam_eps: float | None = param(
        0.1,
        "what the optimiser adds to the root of squared gradients, if it does; null: its own number",
        gt=0,
    )


class A3C(NetworkAgent[A3CConfig]):
    """Asynchronous advantage actor-critic."""

    Config = A3CConfig
    defaults = ON_POLICY_DEFAULTS
    action_kind = "any"
    factors_actions = respects_masks = mixes_actions = True
    metrics = AdvantageActorCritic.terms
    make_algorithm = staticmethod(make)
