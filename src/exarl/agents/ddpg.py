"""Deep deterministic policy gradient (Lillicrap et al. 2015, arXiv 1509.02971), also as TD3 has it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
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
)
from exarl.agents.base import MakeNetwork
from exarl.agents.offpolicy import OffPolicy, OffPolicyConfig, weighted_mean
from exarl.agents.optimizers import ScheduleEnd
from exarl.config import param
from exarl.errors import ConfigError
from exarl.learning.exploration import either, ou_noise
from exarl.learning.losses import squared
from exarl.networks.network import Network
from exarl.types import Array, ArraySpec, Batch, EnvSpec, Memory, Metrics, Namespace, Params


@dataclass(frozen=True)
class DDPGConfig(OffPolicyConfig):
    """Parameters of the deep deterministic policy gradient."""

    batch_size: int = param(256, "transitions in an update", ge=1, le=10**6)
    replay_capacity: int = param(1_000_000, "transitions kept", ge=1, le=10**9)
    max_grad_norm: float | None = param(None, "clip the gradient's norm; null: do not", gt=0)
    policy_learning_rate: float | None = param(
        None, "step size of the policy's optimiser; null: learning_rate", gt=0
    )
    exploration: Literal["gaussian", "ou"] = param(
        "gaussian", "noise on actions: independent, or an Ornstein-Uhlenbeck process"
    )
    noise: float = param(0.1, "standard deviation of the noise, actions being in [-1, 1]", ge=0)
    noise_end: float | None = param(None, "the same after noise_steps; null: noise", ge=0)
    noise_steps: int = param(100_000, "environment steps until noise_end", ge=1)
    ou_theta: float = param(0.15, "how fast an Ornstein-Uhlenbeck noise is forgotten", gt=0, le=1)


@dataclass(frozen=True)
class DeterministicPolicy(OffPolicy[DDPGConfig]):
    """Continuous control: critics learn the value of actions, a policy climbs the first one.

    The first ``learning_starts`` steps act uniformly at random. TD3 is the same with two critics, of
    which the lesser is the target, with a smoothed target policy, and with a policy (and target)
    that moves at every ``delay``-th update only.
    """

    critics: tuple[str, ...] = ("q1",)
    delay: int = 1
    smooths: bool = False

    squashed = True

    @property
    def size(self) -> int:
        """Dimensions of an action."""
        return math.prod(self.spec.action.shape)

    @property
    def memory(self) -> Mapping[str, ArraySpec]:
        if self.config.exploration == "ou":
            return {"ou": ArraySpec((self.size,), "float32")}
        return {}

    def target(self, params: Params) -> Params:
        return params

    # -- acting -------------------------------------------------------------------------------------

    def act(
        self,
        xp: Namespace,
        hyper: Hyper,
        acting: Acting,
        observations: Array,
        rng: Noise | None,
        memory: Memory | None,
    ) -> tuple[Array, dict[str, Array], Memory]:
        shape = (len(observations), *self.spec.action.shape)

        def learned() -> Array:
            actions: Array = xp.tanh(acting.forward("policy", observations, None)[0])
            return actions

        if rng is None:
            return learned().reshape(shape), {}, {}
        size, after = acting.now["noise"], {}  # negative as long as nothing is learned
        if memory and "ou" in memory:
            deviation, drawn = xp.maximum(size, 0), rng.normal(self.size)
            after = {"ou": ou_noise(xp, memory["ou"], hyper["ou_theta"], deviation, drawn)}

        def noisy() -> Array:
            noise = after["ou"] if after else size * rng.normal(self.size)
            return (learned() + noise).clip(-1, 1)

        actions = either(xp, size < 0, lambda: 2 * rng.uniform(self.size) - 1, noisy)
        return actions.astype(np.float32).reshape(shape), {}, after

    def schedules(self, xp: Namespace, hyper: Hyper, steps: float | Array) -> dict[str, Array]:
        first, end = hyper["noise"], hyper.get("noise_end", hyper["noise"])
        noise = first + (end - first) * xp.minimum(1.0, steps / self.config.noise_steps)
        return {"noise": xp.where(steps < self.config.learning_starts, -1.0, noise)}  # -1: uniform

    def schedule_ends(self) -> tuple[ScheduleEnd, ...]:
        cfg, decisive = self.config, ("noise", "noise_end")
        if cfg.noise_end in (None, cfg.noise):
            return super().schedule_ends()
        noise = ScheduleEnd("noise", cfg.noise_end, cfg.noise_steps, parameters=decisive)
        return (*super().schedule_ends(), noise)

    # -- learning -----------------------------------------------------------------------------------

    @property
    def losses(self) -> tuple[Loss, ...]:
        critic, rate = ("critic_loss", "q_mean", "td_error"), "policy_learning_rate"
        return (
            Loss(self.critics, self.critic_loss, critic, "critics"),
            Loss(("policy",), self.policy_loss, ("policy_loss",), "policy", rate, self.delay),
        )

    def critic_loss(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        """Squared errors of every critic, and the metrics of the first."""
        targets = self.targets(xp, hyper, state.target, batch)
        actions = batch["action"].reshape(len(batch["action"]), -1)
        values = [self.q(xp, params, name, batch["observation"], actions) for name in self.critics]
        value: Array = sum(weighted_mean(squared(xp, targets - q), batch) for q in values)  # type: ignore[assignment]
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
        """The first critic's value of the policy's actions, to be climbed; see ``weighted_mean``."""
        actions = self.policy(xp, params, batch["observation"])
        value = -self.q(xp, params, "q1", batch["observation"], actions).mean()
        return value, {"policy_loss": value}

    def targets(self, xp: Namespace, hyper: Hyper, target: Params, batch: Batch) -> Array:
        """Bellman targets [N]: the target critics' least value of what the target policy would do."""
        following = batch["next_observation"]
        actions = self.policy(xp, target, following)
        if self.smooths:
            limit = hyper["target_noise_clip"]
            noise = (hyper["target_noise"] * batch["noise"]).clip(-limit, limit)
            actions = (actions + noise).clip(-1, 1)
        values = [self.q(xp, target, name, following, actions) for name in self.critics]
        least = values[0] if len(values) == 1 else xp.minimum(*values)
        return batch["reward"] + batch["discount"] * least

    def clone_loss(self, xp: Namespace, hyper: Hyper, params: Params, batch: Batch) -> Array:
        """The squared error of the policy's actions."""
        actions = self.policy(xp, params, batch["observation"])
        wanted = batch["action"].reshape(len(batch["action"]), -1)
        return squared(xp, actions - wanted).mean()

    def q(
        self, xp: Namespace, params: Params, name: str, observations: Array, actions: Array
    ) -> Array:
        """[N]"""
        return self.apply(xp, params, name, observations, actions)[:, 0]

    def policy(self, xp: Namespace, params: Params, observations: Array) -> Array:
        """[N, A] in [-1, 1]"""
        actions: Array = xp.tanh(self.apply(xp, params, "policy", observations))
        return actions

    def after_update(self, hyper: Hyper, state: TrainState, complete: bool) -> TrainState:
        # The soft target moves with the policy; a periodic copy does not wait for it.
        return self.move_target(hyper, state, soft=complete)

    def draws(self, rng: Normals, updates: int, batch: int) -> dict[str, Array]:
        if not self.smooths:
            return {}
        return {"noise": rng.standard_normal((updates, batch, self.size), np.float32)}


def networks_for(size: int, critics: tuple[str, ...], make: MakeNetwork) -> dict[str, Network]:
    """A policy of ``size`` outputs, and critics that see actions beside observations."""
    return {"policy": make(size)} | {name: make(1, extra=size) for name in critics}


def check_bounded(spec: EnvSpec, agent: str) -> None:
    """ConfigError unless actions are continuous and bounded."""
    if spec.n_actions is not None:
        raise ConfigError(f"{agent} needs continuous actions; {spec.env_id} has discrete ones")
    if not np.isfinite([*spec.action_low, *spec.action_high]).all():
        raise ConfigError(f"{agent} needs bounded actions; those of {spec.env_id} are not")


def make(spec: EnvSpec, config: DDPGConfig, network: MakeNetwork) -> DeterministicPolicy:
    """The algorithm for an environment; ConfigError when it cannot learn there."""
    check_bounded(spec, "DDPG-v0")
    size = math.prod(spec.action.shape)
    return DeterministicPolicy(spec, config, networks_for(size, ("q1",), network))


class DDPG(NetworkAgent[DDPGConfig]):
    """Deep deterministic policy gradient."""

    Config = DDPGConfig
    defaults: ClassVar[Mapping[str, Any]] = {"models": {"MLP": {"hidden": (256, 256)}}}
    action_kind = "continuous"
    metrics = ("critic_loss", "policy_loss", "q_mean", "td_error", "noise")
    make_algorithm = staticmethod(make)
