"""Deep deterministic policy gradient (Lillicrap et al. 2015, arXiv 1509.02971)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from exarl.agents.acting import Acting
from exarl.agents.base import MakeNetwork, Network
from exarl.agents.offpolicy import OffPolicy, OffPolicyConfig, weighted_mean
from exarl.config import param
from exarl.errors import ConfigError
from exarl.learning.exploration import either
from exarl.learning.losses import squared
from exarl.types import Arrays, ArraySpec, EnvSpec


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


class DDPG(OffPolicy):
    """Continuous control: a critic learns the value of actions, a policy climbs it.

    The first ``learning_starts`` steps act uniformly at random.
    """

    Config: type = DDPGConfig
    action_kind = "continuous"
    metrics: tuple[str, ...] = ("critic_loss", "policy_loss", "q_mean", "td_error", "noise")
    critics: tuple[str, ...] = ("q1",)
    squashed = True

    def __init__(self, spec: EnvSpec, config: Any, network: MakeNetwork, seed: int) -> None:
        check_bounded(spec, type(self).__name__)
        self.size = int(np.prod(spec.action.shape))
        if config.exploration == "ou":
            self.memory = {"ou": ArraySpec((self.size,), "float32")}
        super().__init__(spec, config, network, seed)

    def make_networks(self, make: MakeNetwork) -> dict[str, Network]:
        return {"policy": make(self.size)} | {
            name: make(1, extra=self.size) for name in self.critics
        }

    # -- acting ---------------------------------------------------------------------------------

    def act(
        self, xp: Any, acting: Acting, observations: Any, rng: Any, memory: Any
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        shape, after = (len(observations), *self.spec.action.shape), {}

        def learned() -> Any:
            return xp.tanh(self.outputs(xp, acting, "policy", observations)[0])

        if rng is None:
            return learned().reshape(shape), {}, {}
        size = acting["now"]["noise"]  # negative as long as nothing is learned
        if self.config.exploration == "ou":
            shocks = xp.maximum(size, 0) * rng.normal(self.size)
            after["ou"] = noise = (1 - self.config.ou_theta) * memory["ou"] + shocks
        actions = either(
            xp,
            size < 0,
            lambda: 2 * rng.uniform(self.size) - 1,
            lambda: (learned() + (noise if after else size * rng.normal(self.size))).clip(-1, 1),
        )
        return actions.astype(np.float32).reshape(shape), {}, after

    def schedules(self, steps: Any, xp: Any = np) -> dict[str, Any]:
        cfg = self.config
        end = cfg.noise if cfg.noise_end is None else cfg.noise_end
        noise = cfg.noise + (end - cfg.noise) * xp.minimum(1.0, steps / cfg.noise_steps)
        return {"noise": xp.where(steps < cfg.learning_starts, -1.0, noise)}  # -1: uniform

    # -- learning -------------------------------------------------------------------------------

    def q(self, xp: Any, params: Any, name: str, observations: Any, actions: Any) -> Any:
        """[N]"""
        return self.networks[name].apply(xp, self.part(params, name), observations, actions)[:, 0]

    def policy(self, xp: Any, params: Any, observations: Any) -> Any:
        """[N, A] in [-1, 1]"""
        return xp.tanh(self.networks["policy"].apply(xp, self.part(params, "policy"), observations))

    def targets(self, xp: Any, target: Any, batch: Any) -> Any:
        """Bellman targets [N]: the target critics' least value of what the target policy would do."""
        following = batch["next_observation"]
        actions = self.target_actions(xp, target, batch)
        values = [self.q(xp, target, name, following, actions) for name in self.critics]
        least = values[0] if len(values) == 1 else xp.minimum(*values)
        return batch["reward"] + batch["discount"] * least

    def target_actions(self, xp: Any, target: Any, batch: Any) -> Any:
        return self.policy(xp, target, batch["next_observation"])

    def critic_loss(self, xp: Any, params: Any, batch: Any, targets: Any) -> tuple[Any, Any]:
        """Squared errors of every critic, and the metrics of the first."""
        actions = batch["action"].reshape(len(batch["action"]), -1)
        values = [self.q(xp, params, name, batch["observation"], actions) for name in self.critics]
        value = sum(weighted_mean(squared(xp, targets - q), batch) for q in values)
        sizes = xp.abs(targets - values[0])
        metrics = {"critic_loss": value, "q_mean": values[0].mean(), "td_error": sizes.mean()}
        return value, metrics | ({"priority": sizes} if "weight" in batch else {})

    def policy_loss(self, xp: Any, params: Any, critics: Any, batch: Any) -> tuple[Any, Any]:
        """The first critic's value of the policy's actions, to be climbed."""
        actions = self.policy(xp, params, batch["observation"])
        value = -self.q(xp, critics, "q1", batch["observation"], actions).mean()
        return value, {"policy_loss": value}

    def plan(self, compiled: Any) -> Any:
        xp, delay = compiled.jnp, getattr(self.config, "policy_delay", 1)
        critic_optimiser, policy_optimiser = self._optimisers(compiled)

        def gradient(state: Any, batch: Any) -> Any:
            batch = self.normal_batch(xp, state, batch)
            critics, policy = split(state["params"])
            targets = self.targets(xp, state["target"], batch)
            slope, metrics = compiled.gradient_of(
                lambda params: self.critic_loss(xp, params, batch, targets), critics
            )

            def climb() -> Any:
                return compiled.gradient_of(
                    lambda params: self.policy_loss(xp, params, critics, batch), policy
                )

            def stay() -> tuple[Any, Any]:
                return compiled.zeros_like(policy), {"policy_loss": xp.float32(xp.nan)}

            due = state["count"] % delay == 0
            ascent, more = compiled.chosen(due, climb, stay) if delay > 1 else climb()
            return {**slope, **ascent}, {**metrics, **more}

        def apply(state: Any, slope: Any) -> Any:
            critics, policy = split(state["params"])
            d_critics, d_policy = split(slope)
            critics, critic_opt = compiled.descend(
                critic_optimiser, d_critics, state["critic_opt"], critics
            )

            def move() -> tuple[Any, Any, Any]:
                moved, opt = compiled.descend(
                    policy_optimiser, d_policy, state["policy_opt"], policy
                )
                return moved, opt, self.moved_target(state, {**critics, **moved})[0]

            def stay() -> tuple[Any, Any, Any]:
                target = state["target"]
                if self.copies:  # a periodic copy does not wait for the policy
                    target, _ = self.moved_target(state, {**critics, **policy})
                return policy, state["policy_opt"], target

            due = state["count"] % delay == 0
            policy, policy_opt, target = compiled.chosen(due, move, stay) if delay > 1 else move()
            return {
                **state,
                "params": {**critics, **policy},
                "target": target,
                "critic_opt": critic_opt,
                "policy_opt": policy_opt,
                "count": state["count"] + 1,
            }

        return compiled.Plan(gradient, apply)

    def start(self, compiled: Any, params: Arrays) -> dict[str, Any]:
        critic_optimiser, policy_optimiser = self._optimisers(compiled)
        critics, policy = split(params)
        return {
            "target": params,
            "critic_opt": critic_optimiser.init(critics),
            "policy_opt": policy_optimiser.init(policy),
            "count": np.int32(0),
        }

    def _optimisers(self, compiled: Any) -> tuple[Any, Any]:
        return self.optimiser(compiled), self.optimiser(compiled, self.config.policy_learning_rate)


def split(params: Any) -> tuple[Any, Any]:
    """The parameters of the critics, and those of the policy."""
    policy = {name: array for name, array in params.items() if name.startswith("policy/")}
    return {n: a for n, a in params.items() if n not in policy}, policy


def check_bounded(spec: EnvSpec, agent: str) -> None:
    """ConfigError unless actions are continuous and bounded."""
    if spec.n_actions is not None:
        raise ConfigError(f"{agent} needs continuous actions; {spec.env_id} has discrete ones")
    if not np.isfinite([*spec.action_low, *spec.action_high]).all():
        raise ConfigError(f"{agent} needs bounded actions; those of {spec.env_id} are not")
