"""Deep Q-network: double, dueling and n-step, with soft or periodic target.

Mnih et al., Nature 518 (2015); van Hasselt et al. (arXiv 1509.06461); Wang et al. (arXiv 1511.06581).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from exarl.agents.base import ExaAgent, MakeNetwork, Spread, Team
from exarl.config import param
from exarl.errors import ConfigError
from exarl.learning import losses
from exarl.learning.exploration import (
    LEARNER,
    Streams,
    epsilon_at,
    epsilon_greedy,
    generator,
    json_state,
    restore_state,
)
from exarl.learning.returns import n_step_returns
from exarl.networks import ParamLayout
from exarl.replay import UniformReplay
from exarl.types import Arrays, ArraySpec, Block, EnvSpec


@dataclass(frozen=True)
class DQNConfig:
    """Parameters of the deep Q-network."""

    gamma: float = param(0.99, "discount factor", ge=0, le=1)
    reward_scale: float = param(
        1.0, "factor on every reward; learning is best when values are about 10", gt=0
    )
    learning_rate: float = param(1e-3, "step size of the optimiser", gt=0)
    learning_rate_end: float = param(0.0, "step size after learning_rate_updates", ge=0)
    learning_rate_updates: int = param(
        0, "if not 0: the step size falls linearly to learning_rate_end over so many updates", ge=0
    )
    batch_size: int = param(64, "transitions in an update", ge=1, le=10**6)
    updates_per_step: float = param(
        1.0, "updates per environment step, rounded to whole updates a block", gt=0, le=10**4
    )
    learning_starts: int = param(1000, "environment steps before the first update", ge=0)
    replay_capacity: int = param(50_000, "transitions kept", ge=1, le=10**9)

    epsilon: float = param(1.0, "exploration at the start", ge=0, le=1)
    epsilon_min: float = param(0.05, "exploration at the end", ge=0, le=1)
    epsilon_decay: float = param(0.9995, "factor on epsilon at each environment step", gt=0, le=1)
    epsilon_steps: int = param(
        0, "if not 0: epsilon falls linearly over so many environment steps instead", ge=0
    )

    double: bool = param(True, "the online network chooses the action that the target rates")
    dueling: bool = param(False, "separate value and advantage outputs")
    n_step: int = param(1, "rewards summed before the target bootstraps", ge=1, le=10**6)
    tau: float = param(0.005, "soft target update after each update; 0: periodic copy", ge=0, le=1)
    target_update_interval: int = param(500, "updates between copies when tau is 0", ge=1)
    loss: Literal["huber", "mse"] = param("huber", "loss on the temporal-difference error")
    optimizer: Literal["adam", "adamw", "rmsprop", "sgd", "nadam", "radam", "lion", "adabelief"] = (
        param("adam", "optimiser, by its name in optax")
    )
    max_grad_norm: float | None = param(10.0, "clip the gradient's norm; null: do not", gt=0)
    data_generation: Literal["learner", "actor", "group"] = param(
        "learner",
        "who computes the targets: the learner anew at each update; the actor, once, with the"
        " weights it has; or the actor together with the other ranks of its environment group",
    )
    act_with: Literal["online", "target"] = param(
        "online", "which network acts; the target's slow average is the steadier policy"
    )
    nactions: int = param(
        5, "bins a dimension when the action space is continuous", ge=2, le=10_000
    )


class DQN(ExaAgent):
    """Value-based control of discrete actions (a Box space is discretised, see ``nactions``)."""

    Config = DQNConfig
    action_kind = "discrete"
    metrics = ("loss", "q_mean", "td_error", "epsilon")
    learns_in_team = True

    def __init__(self, spec: EnvSpec, config: DQNConfig, network: MakeNetwork, seed: int) -> None:
        super().__init__(spec, config, network, seed)
        if spec.n_actions is None:
            raise ConfigError(f"DQN-v0 needs discrete actions; {spec.env_id} has continuous ones")
        self._learned: Any = None  # the learning half's state, on a learner
        self._network = network(spec.n_actions + config.dueling)
        params = self._network.init(generator(seed, LEARNER, 0))
        self._names = tuple(params)
        acting = self._acting(params, params, config.epsilon)
        self._layout = ParamLayout.of(acting)
        self.set_weights(self._layout.pack(acting))
        if config.data_generation != "learner":
            self.recorded = {"target": ArraySpec((), "float32")}

    # -- acting ---------------------------------------------------------------------------------

    def q_values(self, xp: Any, params: Any, observations: Any) -> Any:
        """[N, A]"""
        outputs = self._network.apply(xp, params, observations)
        return losses.dueling(xp, outputs) if self.config.dueling else outputs

    def action(
        self, observations: np.ndarray, rng: Streams | None = None
    ) -> tuple[np.ndarray, Arrays]:
        q_values = self.q_values(np, self._params, observations)
        if rng is None:
            return q_values.argmax(-1), {}
        return epsilon_greedy(q_values, self._epsilon, rng.uniform(2)), {}

    def set_weights(self, weights: np.ndarray) -> None:
        self._weights = weights
        self._params = self._layout.unpack(weights)
        self._epsilon = float(self._params["epsilon"])

    def _acting(self, params: Any, target: Any, epsilon: float) -> dict[str, Any]:
        """All that an actor needs, by name; the target network too if it computes targets."""
        shown = params if self.config.act_with == "online" else target
        acting = {**shown, "epsilon": np.float32(epsilon)}
        if self.config.data_generation == "learner":
            return acting
        online = {f"online/{name}": array for name, array in params.items()}
        return acting | online | {f"target/{name}": array for name, array in target.items()}

    def generate(self, rows: Arrays) -> Arrays:
        """The targets of transitions, computed with the weights this actor has."""
        online, target = (
            {name: self._params[f"{part}/{name}"] for name in self._names}
            for part in ("online", "target")
        )
        return {"target": self.targets(np, online, target, rows).astype(np.float32)}

    def prepare(self, block: Block, spread: Spread | None = None) -> Block:
        if self.config.data_generation == "learner":
            return block
        rows = self.transitions(block)
        together = spread is not None and self.config.data_generation == "group"
        made = spread(rows) if together and spread is not None else self.generate(rows)
        target = made["target"].reshape(block.rewards.shape)
        return dataclasses.replace(block, recorded={**block.recorded, "target": target})

    # -- learning -------------------------------------------------------------------------------

    def targets(self, xp: Any, params: Any, target: Any, batch: Any) -> Any:
        """Bellman targets [N]."""
        q_t_value = self.q_values(xp, target, batch["next_observation"])  # [N, A]
        q_t_selector = (
            self.q_values(xp, params, batch["next_observation"])
            if self.config.double
            else q_t_value
        )
        return losses.q_targets(xp, batch["reward"], batch["discount"], q_t_value, q_t_selector)

    def loss(self, xp: Any, params: Any, batch: Any, targets: Any) -> tuple[Any, Any]:
        """Mean loss on the TD errors of a batch, and the metrics of it."""
        q_tm1 = self.q_values(xp, params, batch["observation"])  # [N, A]
        errors = targets - losses.select(xp, q_tm1, batch["action"])  # [N]
        penalty = losses.huber if self.config.loss == "huber" else losses.squared
        value = penalty(xp, errors).mean()
        return value, {"loss": value, "q_mean": q_tm1.mean(), "td_error": xp.abs(errors).mean()}

    def set_learner(self, team: Team | None = None) -> None:
        from exarl.agents import compiled

        cfg = self.config
        rate = compiled.linear(cfg.learning_rate, cfg.learning_rate_end, cfg.learning_rate_updates)
        optimiser = compiled.optimizer(cfg.optimizer, rate, cfg.max_grad_norm)

        def gradient(state: Any, batch: Any) -> tuple[Any, Any]:
            targets = batch.get("target")
            if targets is None:
                targets = self.targets(compiled.jnp, state["params"], state["target"], batch)
            return compiled.gradient_of(
                lambda params: self.loss(compiled.jnp, params, batch, targets), state["params"]
            )

        def apply(state: Any, slope: Any) -> Any:
            params, opt = compiled.descend(optimiser, slope, state["opt"], state["params"])
            count = state["count"] + 1
            rate = cfg.tau if cfg.tau else 1.0 * (count % cfg.target_update_interval == 0)
            target = {k: v + rate * (params[k] - v) for k, v in state["target"].items()}
            return {"params": params, "target": target, "opt": opt, "count": count}

        params = {name: self._params[name] for name in self._names}
        self._learned = compiled.to_device(
            {
                "params": params,
                "target": params,
                "opt": optimiser.init(params),
                "count": np.int32(0),
            }
        )
        self._update = compiled.learner(gradient, apply, team)
        learners, index = (team.size, team.index) if team else (1, 0)
        self._batch_size = max(1, cfg.batch_size // learners)
        self._replay = UniformReplay(cfg.replay_capacity)
        self._rng = generator(self.seed, LEARNER, 1, index)
        self._steps = 0

    def train(self, block: Block | None, steps: int | None = None) -> dict[str, float]:
        if block is not None:
            self._replay.add(self._rows(block))
            steps = block.steps if steps is None else steps
        assert steps is not None
        self._steps += steps
        if self._steps < max(self.config.learning_starts, 1):
            return {"updates": 0, "epsilon": self._epsilon_now()}
        updates = max(1, round(steps * self.config.updates_per_step))
        batches = None
        if self._replay.size:
            batches = self._replay.sample(self._rng, updates, self._batch_size)
        self._learned, metrics = self._update(self._learned, batches, updates)
        learned = {name: float(value) for name, value in metrics.items()}
        return {"updates": updates, "epsilon": self._epsilon_now(), **learned}

    def _rows(self, block: Block) -> Arrays:
        """What the replay keeps of a block: transitions, or states with their ready targets."""
        if self.config.data_generation == "learner":
            return self.transitions(block)
        arrays = (block.observations[:-1], block.actions, block.recorded["target"])
        names = ("observation", "action", "target")
        return {n: a.reshape(-1, *a.shape[2:]) for n, a in zip(names, arrays, strict=True)}

    def transitions(self, block: Block) -> Arrays:
        """The block as independent transitions, [T * B] of each array."""
        returns, discounts, last = n_step_returns(
            np,
            block.rewards * np.float32(self.config.reward_scale),
            block.terminated,
            block.truncated,
            self.config.gamma,
            self.config.n_step,
        )
        following = block.next_observations()
        if self.config.n_step > 1:
            following = following[last, np.arange(last.shape[1])]
        arrays = {
            "observation": block.observations[:-1],
            "action": block.actions,
            "reward": returns,
            "discount": discounts,
            "next_observation": following,
        }
        return {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}

    def get_weights(self) -> np.ndarray:
        if self._learned is None:
            return self._weights.copy()
        learned = self._learned
        return self._layout.pack(
            self._acting(learned["params"], learned["target"], self._epsilon_now())
        )

    def _epsilon_now(self) -> float:
        cfg = self.config
        return epsilon_at(
            self._steps, cfg.epsilon, cfg.epsilon_min, cfg.epsilon_decay, cfg.epsilon_steps
        )

    # -- keeping --------------------------------------------------------------------------------

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        from exarl.agents import compiled

        replay = {f"replay/{name}": array for name, array in self._replay.state().items()}
        arrays = {"weights": self.get_weights(), **compiled.to_arrays(self._learned, "learned")}
        return {**arrays, **replay}, {"steps": self._steps, "rng": json_state(self._rng)}

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        from exarl.agents import compiled

        self._learned = compiled.from_arrays(self._learned, arrays, "learned")
        self._replay.restore(
            {n.removeprefix("replay/"): a for n, a in arrays.items() if n.startswith("replay/")}
        )
        self.set_weights(arrays["weights"])
        self._steps = numbers["steps"]
        if "rng" in numbers:
            restore_state(self._rng, numbers["rng"])
