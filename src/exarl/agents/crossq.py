"""CrossQ: soft actor-critic whose critics normalise batches and need no target network.

Bhatt, Palenicek et al., ICLR 2024 (arXiv 1902.05605).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from exarl.agents.agent import NetworkAgent
from exarl.agents.algorithm import Acting, Hyper, Loss, Noise, Normals, TrainState
from exarl.agents.base import MakeNetwork
from exarl.agents.blocks import AnyBlock
from exarl.agents.critics import critic_names
from exarl.agents.ddpg import check_bounded
from exarl.agents.offpolicy import OffPolicy, weighted_mean
from exarl.agents.running import learned, trained
from exarl.agents.sac import SoftActorCritic, SoftConfig, check_soft
from exarl.config import param
from exarl.errors import ConfigError
from exarl.learning import losses
from exarl.learning.distributions import categorical_projection, log_softmax
from exarl.types import Array, Arrays, ArraySpec, Batch, EnvSpec, Memory, Metrics, Namespace, Params

CRITICS = critic_names(2)
NO_TARGET = {"tau": 0.005, "target_update_interval": 500}
"""What has no effect without a target network, and the values that say nothing."""


@dataclass(frozen=True)
class CrossQConfig(SoftConfig):
    """Parameters of CrossQ."""

    learning_rate: float = param(1e-3, "step size of the optimiser", gt=0)
    betas: tuple[float, float] | None = param(
        (0.5, 0.999),
        "how slowly the optimiser's two averages forget, [b1, b2]; null: its own",
        ge=0,
        lt=1,
    )
    policy_delay: int = param(
        3, "critic updates for each update of the policy and of the temperature", ge=1
    )
    renorm_after: int = param(
        100_000,
        "updates after which batches are normalised by the running moments, within limits (batch"
        " renormalisation); before that by their own",
        ge=0,
    )


@dataclass(frozen=True)
class BatchCritics(OffPolicy[CrossQConfig]):
    """The policy, the temperature and what is kept are those of ``sac``. A critic sees both states of
    transitions, with their actions, as one batch: it normalises them by the same statistics."""

    sac: SoftActorCritic
    atoms: int = 0
    """Values that a critic gives probabilities to; 0: it is one number."""
    lags: bool = False
    """Whether next states are rated by a copy of the critics that lags behind."""
    unit_weights: bool = False
    """Whether the weights of each unit are kept at length 1."""
    entropy: float = -1.0
    """The entropy to hold for each dimension, unless the configuration has a target."""

    follows_batches = True

    @property
    def greedy(self) -> slice:
        return self.sac.greedy

    @property
    def squashed(self) -> bool:
        return self.sac.squashed

    @property
    def recorded(self) -> Mapping[str, ArraySpec]:
        return self.sac.recorded

    def init(self, rng: np.random.Generator, hyper: Hyper) -> Arrays:
        params = self.sac.init(rng, hyper)
        return self._with_unit_weights(params, complete=True) if self.unit_weights else params  # type: ignore[return-value]

    def target(self, params: Params) -> Params:
        return trained(params, CRITICS) if self.lags else {}

    def schedules(self, xp: Namespace, hyper: Hyper, steps: float | Array) -> dict[str, Array]:
        return self.sac.schedules(xp, hyper, steps)

    def act(
        self,
        xp: Namespace,
        hyper: Hyper,
        acting: Acting,
        observations: Array,
        rng: Noise | None,
        memory: Memory | None,
    ) -> tuple[Array, dict[str, Array], Memory]:
        return self.sac.act(xp, hyper, acting, observations, rng, memory)

    def rows(self, xp: Namespace, hyper: Hyper, block: AnyBlock) -> dict[str, Array]:
        return self.sac.rows(xp, hyper, block)

    def draws(self, rng: Normals, updates: int, batch: int) -> dict[str, Array]:
        return self.sac.draws(rng, updates, batch)

    # -- learning -----------------------------------------------------------------------------------

    @property
    def losses(self) -> tuple[Loss, ...]:
        critic = ("critic_loss", "q_mean", "td_error")
        policy, every = ("policy_loss", "alpha", "entropy"), self.config.policy_delay
        made = (
            Loss(CRITICS, self.critic_loss, critic, "critics"),
            Loss(("policy",), self.policy_loss, policy, "policy", "policy_learning_rate", every),
            Loss(
                ("log_alpha",),
                self.temperature_loss,
                (),
                "temperature",
                "temperature_learning_rate",
                every,
            ),
        )
        return made if self.config.learn_alpha else made[:2]

    def critic_loss(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        """The losses of both critics, the metrics of the first, and the moments of both."""
        following, now = batch["next_observation"], batch["action"]
        now = now.reshape(len(now), -1)
        actions, log_p = self.sac.policy(xp, state.params, following, batch["next_noise"])
        both = (
            xp.concatenate([batch["observation"], following]),
            xp.concatenate([now, actions.astype(now.dtype)]),
        )
        rating, renormalise = {**state.params, **state.target}, self._renormalises(state)
        made, ahead = [], []
        moments: Metrics = {}
        for name in CRITICS:
            outputs, after = learned(self, xp, params, name, both, renormalise)
            made.append(outputs[: len(now)])
            moments |= after
            # Where there is no target these are the same numbers, which XLA computes once.
            ahead.append(learned(self, xp, rating, name, both, renormalise)[0][len(now) :])
        bonus = -xp.exp(state.params["log_alpha"]) * log_p
        compare = self._categorical if self.atoms else self._squared
        rows, values, targets = compare(xp, hyper, made, ahead, bonus, batch)
        loss: Array = sum(weighted_mean(row, batch) for row in rows)  # type: ignore[assignment]
        sizes = xp.abs(targets - values)
        metrics = {"critic_loss": loss, "q_mean": values.mean(), "td_error": sizes.mean()}
        return loss, {**metrics, **moments, **({"priority": sizes} if "weight" in batch else {})}

    def _squared(
        self,
        xp: Namespace,
        hyper: Hyper,
        made: list[Array],
        ahead: list[Array],
        bonus: Array,
        batch: Batch,
    ) -> tuple[list[Array], Array, Array]:
        """The loss of each row for each critic, the first one's values and their targets [N]."""
        least = xp.minimum(*ahead)[:, 0]
        targets = batch["reward"] + batch["discount"] * (least + bonus)
        return [losses.squared(xp, targets - q[:, 0]) for q in made], made[0][:, 0], targets

    def _categorical(
        self,
        xp: Namespace,
        hyper: Hyper,
        made: list[Array],
        ahead: list[Array],
        bonus: Array,
        batch: Batch,
    ) -> tuple[list[Array], Array, Array]:
        """``_squared`` for critics of probabilities: the cross-entropy with the distribution of the
        lesser critic, moved to where the rewards and the discount put it."""
        support = self._support(xp, hyper)
        first, second = (self._values(xp, hyper, outputs) for outputs in ahead)
        least = xp.where((first <= second)[:, None], *ahead)
        places = batch["reward"][:, None] + batch["discount"][:, None] * (support + bonus[:, None])
        mass = categorical_projection(xp, places, xp.exp(log_softmax(xp, least)), support)
        rows = [-(mass * log_softmax(xp, outputs)).sum(-1) for outputs in made]
        return rows, self._values(xp, hyper, made[0]), (mass * support).sum(-1)

    def policy_loss(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        """The soft value of the policy's actions by the lesser critic, to be climbed, and the policy's
        moments. The critics rate by their running moments."""
        seen, renormalise = batch["observation"], self._renormalises(state)
        outputs, moments = learned(self, xp, params, "policy", (seen,), renormalise)
        actions, log_p = self.sac.squashed_sample(xp, outputs, batch["noise"])
        rated = [self.apply(xp, params, name, seen, actions) for name in CRITICS]
        least = xp.minimum(*(self._values(xp, hyper, outputs) for outputs in rated))
        alpha = xp.exp(params["log_alpha"])
        loss = (alpha * log_p - least).mean()
        return loss, {"policy_loss": loss, "alpha": alpha, "entropy": -log_p.mean(), **moments}

    def temperature_loss(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        hold = {"target_entropy": self.entropy * self.spec.action_size, **hyper}
        return self.sac.temperature_loss(xp, hold, params, state, batch)

    def after_update(self, hyper: Hyper, state: TrainState, complete: bool) -> TrainState:
        if self.unit_weights:
            state = state._replace(params=self._with_unit_weights(state.params, complete))
        return self.move_target(hyper, state, soft=True) if self.lags else state

    def _with_unit_weights(self, params: Params, complete: bool) -> dict[str, Array]:
        """The parameters with all weights at length 1; not ``complete``: those of the critics."""
        moved = tuple(f"{name}/" for name in (self.networks if complete else CRITICS))
        return {
            name: array / ((array * array).sum(0) + 1e-12) ** 0.5
            if name.startswith(moved) and name.endswith("/w")
            else array
            for name, array in params.items()
        }

    def _renormalises(self, state: TrainState) -> Array:
        return state.updates >= self.config.renorm_after

    def _values(self, xp: Namespace, hyper: Hyper, outputs: Array) -> Array:
        """The values [N] in a critic's outputs."""
        if not self.atoms:
            return outputs[:, 0]
        return (xp.exp(log_softmax(xp, outputs)) * self._support(xp, hyper)).sum(-1)

    def _support(self, xp: Namespace, hyper: Hyper) -> Array:
        """The values that probabilities are given to, [atoms]."""
        even: Array = hyper["value_limit"] * xp.linspace(-1, 1, self.atoms, dtype=np.float32)
        return even


def critics_for(
    spec: EnvSpec, network: MakeNetwork, config: CrossQConfig, agent: str, outputs: int
) -> tuple[Mapping[str, Any], SoftActorCritic]:
    """A policy and two critics with this many outputs, and soft actor-critic over them; ConfigError
    when it cannot learn in this environment."""
    check_bounded(spec, agent)
    check_soft(config)
    if config.critics != len(CRITICS):
        raise ConfigError(f"{agent} has two critics: leave critics out")
    size = spec.action_size
    networks = {"policy": network(2 * size)}
    networks |= {name: network(outputs, extra=size) for name in CRITICS}
    return networks, SoftActorCritic(spec, config, networks)


def make(spec: EnvSpec, config: CrossQConfig, network: MakeNetwork) -> BatchCritics:
    """The algorithm for an environment; ConfigError when it cannot learn there."""
    for name, default in NO_TARGET.items():
        if getattr(config, name) != default:
            raise ConfigError(f"CrossQ-v0 has no target network: leave {name} out")
    networks, sac = critics_for(spec, network, config, "CrossQ-v0", 1)
    return BatchCritics(spec, config, networks, sac)


class CrossQ(NetworkAgent[CrossQConfig]):
    """Soft actor-critic with batch normalisation and without target networks."""

    Config = CrossQConfig
    defaults: ClassVar[Mapping[str, Any]] = {
        "models": {"MLP": {"hidden": (512, 512), "batch_norm": "after"}}
    }
    action_kind = "continuous"
    metrics = ("critic_loss", "policy_loss", "q_mean", "td_error", "alpha", "entropy")
    make_algorithm = staticmethod(make)
