"""PQN: Q-learning from fresh blocks of many environments, without a replay or a target network.

Gallici et al. 2024 (arXiv 2407.04811). Layer normalisation keeps the values from diverging.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from exarl.agents.agent import NetworkAgent
from exarl.agents.algorithm import (
    Acting,
    Algorithm,
    AlgorithmConfig,
    Hyper,
    Loss,
    Noise,
    TrainState,
    flat,
)
from exarl.agents.base import MakeNetwork
from exarl.agents.blocks import AnyBlock
from exarl.agents.optimizers import ScheduleEnd
from exarl.agents.passes import minibatches_of, parts_of
from exarl.config import LearnerConfig, param
from exarl.errors import ConfigError
from exarl.learning import losses
from exarl.learning.distributions import is_allowed
from exarl.learning.exploration import epsilon_at, epsilon_end, epsilon_greedy_among
from exarl.learning.returns import q_lambda
from exarl.types import Array, Batch, EnvSpec, Memory, Metrics, Namespace, Params

MINIBATCH = 128
"""Steps in a minibatch, unless their number is given."""


@dataclass(frozen=True)
class PQNConfig(AlgorithmConfig):
    """Parameters of PQN."""

    learning_rate: float = param(5e-4, "step size of the optimiser", gt=0)
    learning_rate_fraction: float = param(
        1.0, "if not 0: it falls linearly to its end over this part of total_steps", ge=0, le=1
    )
    optimizer: Literal["adam", "adamw", "rmsprop", "sgd", "nadam", "radam", "lion", "adabelief"] = (
        param("radam", "optimiser, by its name in optax")
    )
    q_lambda: float = param(
        0.95, "0: targets of one step, 1: sums of all rewards of the block", ge=0, le=1
    )
    epochs: int = param(4, "passes over a block", ge=1)
    minibatches: int | None = param(
        None,
        f"updates in a pass, each with its part of the block; null: as many as give each {MINIBATCH}"
        " steps",
        ge=1,
    )
    epsilon: float = param(1.0, "exploration at the start", ge=0, le=1)
    epsilon_min: float = param(0.05, "exploration at the end", ge=0, le=1)
    epsilon_steps: int = param(
        50_000, "environment steps over which epsilon falls linearly; 0: by epsilon_decay", ge=0
    )
    epsilon_decay: float = param(
        0.9995, "factor on epsilon at each environment step, if epsilon_steps is 0", gt=0, le=1
    )
    nactions: int = param(
        5, "bins per dimension when the action space is continuous", ge=2, le=10_000
    )


@dataclass(frozen=True)
class ParallelQ(Algorithm[PQNConfig]):
    """Several passes of minibatches over each block, towards targets of its own rewards."""

    acts_with = ("q",)

    def act(
        self,
        xp: Namespace,
        hyper: Hyper,
        acting: Acting,
        observations: Array,
        rng: Noise | None,
        memory: Memory | None,
    ) -> tuple[Array, dict[str, Array], Memory]:
        outputs, after = acting.forward("q", observations, memory)
        q_values = self.among(xp, outputs, observations)
        if rng is None:
            return q_values.argmax(-1), {}, after
        drawn = epsilon_greedy_among(xp, q_values, acting.now["epsilon"], rng.uniform(2))
        return drawn, {}, after

    def schedules(self, xp: Namespace, hyper: Hyper, steps: float | Array) -> dict[str, Array]:
        decay = (hyper["epsilon"], hyper["epsilon_min"], hyper["epsilon_decay"])
        return {"epsilon": epsilon_at(steps, *decay, self.config.epsilon_steps, xp=xp)}

    def schedule_ends(self) -> tuple[ScheduleEnd, ...]:
        cfg, decisive = self.config, ("epsilon", "epsilon_min", "epsilon_decay")
        last = epsilon_end(cfg.epsilon, cfg.epsilon_min, cfg.epsilon_decay, cfg.epsilon_steps)
        epsilon = ScheduleEnd("epsilon", cfg.epsilon_min, last, parameters=decisive)
        return (epsilon,) * (last > 0)

    # -- learning -----------------------------------------------------------------------------------

    def rows(self, xp: Namespace, hyper: Hyper, block: AnyBlock) -> dict[str, Array]:
        return {
            "observation": block.observations[:-1],
            "next_observation": block.next_observations(),
            "action": block.actions,
            "reward": self.rewards(hyper, block),
            "terminated": block.terminated,
            "ended": block.ended,
        }

    def prepare(self, xp: Namespace, hyper: Hyper, state: TrainState, rows: Batch) -> Batch:
        """The block as rows [T * B, ...] with the targets of all its updates."""
        shape = rows["reward"].shape
        ahead = self.q_values(xp, state.params, flat(rows["next_observation"])).max(-1)
        targets = q_lambda(
            xp,
            ahead.reshape(shape),
            rows["reward"],
            hyper["gamma"] * (1.0 - rows["terminated"]),
            1.0 * rows["ended"],
            hyper["q_lambda"],
        )
        made = {name: flat(rows[name]) for name in ("observation", "action")}
        return {**made, "target": targets.reshape(-1), "index": rows["index"]}

    @property
    def losses(self) -> tuple[Loss, ...]:
        return (Loss(("q",), self.loss, ("loss", "q_mean", "td_error"), "q"),)

    def loss(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        """The mean square of the errors of a minibatch."""
        q_values = self.q_values(xp, params, batch["observation"])
        errors = batch["target"] - losses.select(xp, q_values, batch["action"])
        value, allowed = losses.squared(xp, errors).mean(), is_allowed(q_values)
        mean = xp.where(allowed, q_values, 0).sum() / allowed.sum()
        return value, {"loss": value, "q_mean": mean, "td_error": xp.abs(errors).mean()}

    def q_values(self, xp: Namespace, params: Params, observations: Array) -> Array:
        """[N, A]; see ``among``."""
        return self.among(xp, self.apply(xp, params, "q", observations), observations)

    def n_updates(self, steps: int, made: int) -> int:
        return self.config.epochs * minibatches_of(steps, self.config.minibatches, MINIBATCH)

    def passes(self, rows: Batch) -> tuple[int, int]:
        """ConfigError when a block has fewer steps than there are minibatches."""
        count = rows["reward"].size
        if count < (self.config.minibatches or 1):
            raise ConfigError(
                f"minibatches={self.config.minibatches} needs as many steps in a block, not {count}"
            )
        return self.config.epochs, count

    def split(self, orders: Array, updates: int) -> Array:
        return parts_of(orders, updates)

    def minibatch(self, data: Batch, update: int | Array) -> Batch:
        index = data["index"][update]
        return {name: array[index] for name, array in data.items() if name != "index"}


def make(spec: EnvSpec, config: PQNConfig, network: MakeNetwork) -> ParallelQ:
    """The algorithm for an environment; ConfigError when it cannot learn there."""
    if spec.n_actions is None:
        raise ConfigError(f"PQN-v0 needs discrete actions; {spec.env_id} has others")
    return ParallelQ(spec, config, {"q": network(spec.action_size)})


class PQN(NetworkAgent[PQNConfig]):
    """Q-learning from fresh blocks of many environments; a Box action space is discretised."""

    Config = PQNConfig
    defaults: ClassVar[Mapping[str, Any]] = {
        "block_steps": 64,
        "envs_per_actor": 16,
        "models": {
            "MLP": {"hidden": (128, 128), "layer_norm": True},
            "CNN": {"layer_norm": True},
        },
    }
    action_kind = "discrete"
    respects_masks = True
    metrics = ("loss", "q_mean", "td_error", "epsilon")
    make_algorithm = staticmethod(make)

    @classmethod
    def check(
        cls, config: AlgorithmConfig, run: LearnerConfig, *, learners: int, lags: bool
    ) -> None:
        if lags:
            raise ConfigError(
                f"agent '{run.agent}' learns only from its present policy; in workflow"
                f" '{run.workflow}' actors lag behind: set max_policy_lag 0, or take sync or fused"
            )
        super().check(config, run, learners=learners, lags=lags)

    @classmethod
    def discrete_bins(cls, config: PQNConfig) -> int:
        return config.nactions
