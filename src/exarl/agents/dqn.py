"""Deep Q-network: double, dueling and n-step, with soft or periodic target, feed-forward or recurrent.

Mnih et al., Nature 518 (2015); van Hasselt et al. (arXiv 1509.06461); Wang et al. (arXiv 1511.06581);
recurrent, with stored state and burn-in: Kapturowski et al. (ICLR 2019).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from exarl.agents.acting import Acting
from exarl.agents.base import MakeNetwork, Network, Spread
from exarl.agents.offpolicy import OffPolicy, OffPolicyConfig, weighted_mean
from exarl.config import param
from exarl.errors import ConfigError
from exarl.learning import losses
from exarl.learning.exploration import epsilon_at, epsilon_greedy
from exarl.learning.returns import n_step_returns
from exarl.types import Arrays, ArraySpec, Block, EnvSpec


@dataclass(frozen=True)
class DQNConfig(OffPolicyConfig):
    """Parameters of the deep Q-network."""

    epsilon: float = param(1.0, "exploration at the start", ge=0, le=1)
    epsilon_min: float = param(0.05, "exploration at the end", ge=0, le=1)
    epsilon_decay: float = param(0.9995, "factor on epsilon at each environment step", gt=0, le=1)
    epsilon_steps: int = param(
        0, "if not 0: epsilon falls linearly over so many environment steps instead", ge=0
    )
    double: bool = param(True, "the online network chooses the action that the target rates")
    dueling: bool = param(False, "separate value and advantage outputs")
    loss: Literal["huber", "mse"] = param("huber", "loss on the temporal-difference error")
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
    burn_in: int = param(
        0, "with an LSTM: first steps of a block that only warm up its memory", ge=0
    )


class DQN(OffPolicy):
    """Value-based control of discrete actions (a Box space is discretised, see ``nactions``).

    With a network that has memory, a row of the replay is what one environment did in a block, and
    ``batch_size`` counts these; the memory at its start is stored with it.
    """

    Config = DQNConfig
    action_kind = "discrete"
    metrics = ("loss", "q_mean", "td_error", "epsilon")
    acts_with = ("q",)
    recurrent = True

    def __init__(self, spec: EnvSpec, config: DQNConfig, network: MakeNetwork, seed: int) -> None:
        if config.data_generation != "learner":
            self.recorded = {"target": ArraySpec((), "float32")}
        super().__init__(spec, config, network, seed)
        if config.dueling:
            self.greedy = slice(1, None)  # the value is the same for all actions
        if self.memory and config.data_generation != "learner":
            raise ConfigError("data_generation must be learner with a network that has memory")
        if config.normalize_rewards and config.data_generation != "learner":
            raise ConfigError("data_generation must be learner when normalize_rewards is on")

    def make_networks(self, make: MakeNetwork) -> dict[str, Network]:
        if self.spec.n_actions is None:
            raise ConfigError(
                f"DQN-v0 needs discrete actions; {self.spec.env_id} has continuous ones"
            )
        return {"q": make(self.spec.n_actions + self.config.dueling)}

    # -- acting ---------------------------------------------------------------------------------

    def act(
        self, xp: Any, acting: Acting, observations: Any, rng: Any, memory: Any
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        outputs, after = self.outputs(xp, acting, "q", observations, memory)
        q_values = losses.dueling(xp, outputs) if self.config.dueling else outputs
        if rng is None:
            return q_values.argmax(-1), {}, after
        epsilon = acting["now"]["epsilon"]
        return epsilon_greedy(xp, q_values, epsilon, rng.uniform(2)), {}, after

    def shown(self, state: Any) -> dict[str, Any]:
        params, target = state["params"], state["target"]
        shown = dict(params if self.config.act_with == "online" else target)
        if self.config.data_generation == "learner":
            return shown
        online = {f"online/{name}": array for name, array in params.items()}
        return shown | online | {f"target/{name}": array for name, array in target.items()}

    def schedules(self, steps: Any, xp: Any = np) -> dict[str, Any]:
        cfg = self.config
        decay = (cfg.epsilon, cfg.epsilon_min, cfg.epsilon_decay, cfg.epsilon_steps)
        return {"epsilon": epsilon_at(steps, *decay, xp=xp)}

    def generate(self, rows: Arrays) -> Arrays:
        """The targets of transitions, computed with the weights this actor has."""
        online, target = (self.part(self.acting[""], part) for part in ("online", "target"))
        rows = {**rows, "next_observation": self.normal(np, self.acting, rows["next_observation"])}
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

    def q_values(self, xp: Any, params: Any, observations: Any) -> Any:
        """[N, A]"""
        outputs = self.networks["q"].apply(xp, self.part(params, "q"), observations)
        return losses.dueling(xp, outputs) if self.config.dueling else outputs

    def targets(self, xp: Any, params: Any, target: Any, batch: Any) -> Any:
        """Bellman targets [N]."""
        q_t_value = self.q_values(xp, target, batch["next_observation"])  # [N, A]
        q_t_selector = (
            self.q_values(xp, params, batch["next_observation"])
            if self.config.double
            else q_t_value
        )
        return losses.q_targets(xp, batch["reward"], batch["discount"], q_t_value, q_t_selector)

    def loss(self, xp: Any, q_tm1: Any, batch: Any, targets: Any) -> tuple[Any, Any]:
        """Mean loss on the TD errors of a batch, and the metrics of it."""
        errors = targets - losses.select(xp, q_tm1, batch["action"])  # [N] or [T, N]
        penalty = losses.huber if self.config.loss == "huber" else losses.squared
        value = weighted_mean(penalty(xp, errors), batch)
        sizes = xp.abs(errors)
        metrics = {"loss": value, "q_mean": q_tm1.mean(), "td_error": sizes.mean()}
        if "weight" in batch:
            metrics["priority"] = sizes if sizes.ndim == 1 else sizes.mean(0)
        return value, metrics

    def plan(self, compiled: Any) -> Any:
        optimiser, jnp = self.optimiser(compiled), compiled.jnp
        sequences = _Sequences(self, compiled)

        def gradient(state: Any, batch: Any) -> Any:
            batch = self.normal_batch(jnp, state, batch)
            params, target = state["params"], state["target"]
            if self.memory:
                targets, batch = sequences.targets(params, target, batch)
            elif (targets := batch.get("target")) is None:
                targets = self.targets(jnp, params, target, batch)
            evaluate = sequences.learned if self.memory else self._plain

            def loss(params: Any) -> tuple[Any, Any]:
                return self.loss(jnp, evaluate(jnp, params, batch), batch, targets)

            return compiled.gradient_of(loss, params)

        def apply(state: Any, slope: Any) -> Any:
            params, opt = compiled.descend(optimiser, slope, state["opt"], state["params"])
            target, count = self.moved_target(state, params)
            return {**state, "params": params, "target": target, "opt": opt, "count": count}

        return compiled.Plan(gradient, apply)

    def start(self, compiled: Any, params: Arrays) -> dict[str, Any]:
        return {**super().start(compiled, params), "target": params, "count": np.int32(0)}

    def _plain(self, xp: Any, params: Any, batch: Any) -> Any:
        return self.q_values(xp, params, batch["observation"])

    def rows(self, block: Block, xp: Any = np) -> Arrays:
        """What the replay keeps: transitions, states with their ready targets, or sequences."""
        if self.memory:
            return _sequences(self, block, xp)
        if self.config.data_generation == "learner":
            return super().rows(block, xp)
        arrays = (block.observations[:-1], block.actions, block.recorded["target"])
        names = ("observation", "action", "target")
        return {n: a.reshape(-1, *a.shape[2:]) for n, a in zip(names, arrays, strict=True)}


def _sequences(agent: DQN, block: Block, xp: Any) -> Arrays:
    """What each environment did in the block, [B, T, ...], and the memory it began with [B, ...]."""
    cfg, steps = agent.config, len(block.rewards)
    if cfg.burn_in >= steps:
        raise ConfigError(f"burn_in={cfg.burn_in} leaves nothing of blocks of {steps} steps")
    returns, discounts, last = n_step_returns(
        xp, agent.rewards(block), block.terminated, block.truncated, cfg.gamma, cfg.n_step
    )
    resets = xp.concatenate([xp.zeros_like(block.ended[:1]), block.ended[:-1]])
    arrays = {
        "observation": block.observations[:-1],
        "next_observation": block.next_observations(),
        "action": block.actions,
        "reward": returns,
        "discount": discounts,
        "last": last,
        "reset": resets,
    }
    memory = {f"memory/{name}": block.recorded[f"memory/{name}"][0] for name in agent.memory}
    return {**{name: array.swapaxes(0, 1) for name, array in arrays.items()}, **memory}


class _Sequences:
    """Values along sequences; batches come as [N, T, ...], inside it is [T, N, ...]."""

    def __init__(self, agent: DQN, compiled: Any) -> None:
        self._agent = agent
        self._compiled = compiled
        self._network = agent.networks["q"]

    def targets(self, params: Any, target: Any, batch: Any) -> tuple[Any, Any]:
        """Bellman targets [T, N] after the burn-in, and the batch in that form."""
        jnp, cfg = self._compiled.jnp, self._agent.config
        batch = {
            n: a.swapaxes(0, 1) if not n.startswith(("memory/", "weight")) else a
            for n, a in batch.items()
        }
        ahead = self._ahead(target, batch)
        chooser = self._ahead(params, batch) if cfg.double else ahead
        ahead, chooser = (
            jnp.take_along_axis(q, batch["last"][..., None], 0) for q in (ahead, chooser)
        )
        made = losses.q_targets(jnp, batch["reward"], batch["discount"], ahead, chooser)
        learned = slice(cfg.burn_in, None)
        return made[learned], {**batch, "all": batch, "action": batch["action"][learned]}

    def learned(self, xp: Any, params: Any, batch: Any) -> Any:
        """[T, N, A], after the burn-in."""
        return self._along(params, batch["all"])[0][self._agent.config.burn_in :]

    def _along(self, params: Any, batch: Any) -> tuple[Any, Any]:
        memory = {name: batch[f"memory/{name}"] for name in self._agent.memory}
        params = self._agent.part(params, "q")
        outputs, after = self._compiled.unrolled(
            self._network, params, batch["observation"], memory, batch["reset"]
        )
        return self._values(outputs), after

    def _ahead(self, params: Any, batch: Any) -> Any:
        """Action values [T, N, A] of where each step truly led, with the memory it led there with."""
        jnp = self._compiled.jnp
        after = self._along(params, batch)[1]
        flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in after.items()}
        seen = batch["next_observation"]
        outputs, _ = self._network.step(
            jnp, self._agent.part(params, "q"), seen.reshape(-1, *seen.shape[2:]), flat
        )
        return self._values(outputs).reshape(*seen.shape[:2], -1)

    def _values(self, outputs: Any) -> Any:
        return (
            losses.dueling(self._compiled.jnp, outputs) if self._agent.config.dueling else outputs
        )
