"""Quantile regression DQN (Dabney et al. 2017, arXiv 1710.10044)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from exarl.agents.agent import NetworkAgent
from exarl.agents.algorithm import Acting, Hyper, Loss, Noise, TrainState
from exarl.agents.base import MakeNetwork
from exarl.agents.dqn import DQN, GreedyConfig, explored, scheduled, schedules_end
from exarl.agents.offpolicy import OffPolicy, weighted_mean
from exarl.agents.optimizers import ScheduleEnd
from exarl.config import param
from exarl.errors import ConfigError
from exarl.learning.losses import large_margin, quantile_huber
from exarl.types import Array, Batch, EnvSpec, Memory, Metrics, Namespace, Params


@dataclass(frozen=True)
class QRDQNConfig(GreedyConfig):
    """Parameters of quantile regression DQN."""

    quantiles: int = param(50, "quantiles of the return of each action", ge=1, le=10_000)


@dataclass(frozen=True)
class QuantileQ(OffPolicy[QRDQNConfig]):
    """Each action's value is the mean of the quantiles of its return, which are what is learned."""

    acts_with = ("q",)

    @property
    def averages(self) -> int:
        return self.config.quantiles

    def target(self, params: Params) -> Params:
        return params

    def act(
        self,
        xp: Namespace,
        hyper: Hyper,
        acting: Acting,
        observations: Array,
        rng: Noise | None,
        memory: Memory | None,
    ) -> tuple[Array, dict[str, Array], Memory]:
        outputs, _ = acting.forward("q", observations, None)
        q_values = self._values(xp, outputs, observations)
        if rng is None:
            return q_values.argmax(-1), {}, {}
        return explored(xp, self.spec, q_values, acting.now["epsilon"], rng), {}, {}

    def schedules(self, xp: Namespace, hyper: Hyper, steps: float | Array) -> dict[str, Array]:
        return scheduled(xp, self.config, hyper, steps)

    def schedule_ends(self) -> tuple[ScheduleEnd, ...]:
        return (*super().schedule_ends(), *schedules_end(self.config))

    # -- learning -----------------------------------------------------------------------------------

    @property
    def losses(self) -> tuple[Loss, ...]:
        return (Loss(("q",), self.loss, ("loss", "q_mean", "td_error"), "q"),)

    def loss(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        """The mean quantile Huber loss of the actions taken."""
        targets = self.targets(xp, state.params, state.target, batch)
        found = self.quantiles(xp, params, batch["observation"])
        taken = chosen(xp, found, batch["action"])
        value = weighted_mean(quantile_huber(xp, taken, targets), batch)
        sizes = xp.abs(targets.mean(-1) - taken.mean(-1))
        metrics: Metrics = {"loss": value, "q_mean": found.mean(), "td_error": sizes.mean()}
        return value, metrics | ({"priority": sizes} if "weight" in batch else {})

    def clone_loss(self, xp: Namespace, hyper: Hyper, params: Params, batch: Batch) -> Array:
        """The large-margin loss of the values."""
        q_values = self.q_values(xp, params, batch["observation"])
        return large_margin(xp, q_values, batch["action"]).mean()

    def targets(self, xp: Namespace, params: Params, target: Params, batch: Batch) -> Array:
        """Bellman targets [N, K]: the quantiles of the best action."""
        following = batch["next_observation"]
        ahead = self.quantiles(xp, target, following)
        chooser = self.quantiles(xp, params, following) if self.config.double else ahead
        best = self.among(xp, chooser.mean(-1), following).argmax(-1)
        return batch["reward"][:, None] + batch["discount"][:, None] * chosen(xp, ahead, best)

    def quantiles(self, xp: Namespace, params: Params, observations: Array) -> Array:
        """[N, A, K]"""
        outputs = self.apply(xp, params, "q", observations)
        return outputs.reshape(len(outputs), -1, self.config.quantiles)

    def q_values(self, xp: Namespace, params: Params, observations: Array) -> Array:
        """[N, A]; see ``among``."""
        return self._values(xp, self.apply(xp, params, "q", observations), observations)

    def _values(self, xp: Namespace, outputs: Array, observations: Array) -> Array:
        means = outputs.reshape(len(outputs), -1, self.config.quantiles).mean(-1)
        return self.among(xp, means, observations)


def chosen(xp: Namespace, quantiles: Array, actions: Array) -> Array:
    """Of quantiles [N, A, K] those of an action each, [N, K]; as a masked sum, without a scatter."""
    mask = xp.arange(quantiles.shape[1]) == actions[:, None]
    return xp.where(mask[..., None], quantiles, 0).sum(1)


def make(spec: EnvSpec, config: QRDQNConfig, network: MakeNetwork) -> QuantileQ:
    """The algorithm for an environment; ConfigError when it cannot learn there."""
    if spec.n_actions is None:
        raise ConfigError(f"QRDQN-v0 needs discrete actions; {spec.env_id} has others")
    return QuantileQ(spec, config, {"q": network(spec.n_actions * config.quantiles)})


class QRDQN(NetworkAgent[QRDQNConfig]):
    """Quantile regression DQN; a Box action space is discretised, see ``nactions``."""

    Config = QRDQNConfig
    defaults: ClassVar[Mapping[str, Any]] = DQN.defaults
    action_kind = "discrete"
    respects_masks = True
    metrics = DQN.metrics
    make_algorithm = staticmethod(make)

    @classmethod
    def discrete_bins(cls, config: QRDQNConfig) -> int:
        return config.nactions
