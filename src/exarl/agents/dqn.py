"""Deep Q-network: double, dueling and n-step, with soft or periodic target, feed-forward or recurrent.

Mnih et al., Nature 518 (2015); van Hasselt et al. (arXiv 1509.06461); Wang et al. (arXiv 1511.06581);
recurrent, with stored state and burn-in: Kapturowski et al. (ICLR 2019).
"""

from __future__ import annotations

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
    TrainState,
    flat,
    part,
    unroll,
)
from exarl.agents.base import MakeNetwork
from exarl.agents.blocks import AnyBlock, steps_of
from exarl.agents.offpolicy import OffPolicy, OffPolicyConfig, weighted_mean
from exarl.agents.optimizers import ScheduleEnd
from exarl.config import param
from exarl.errors import ConfigError
from exarl.learning import losses
from exarl.learning.distributions import is_allowed
from exarl.learning.exploration import (
    epsilon_at,
    epsilon_end,
    epsilon_greedy,
    epsilon_greedy_among,
)
from exarl.types import Array, ArraySpec, Batch, EnvSpec, Memory, Metrics, Namespace, Params


@dataclass(frozen=True)
class GreedyConfig(OffPolicyConfig):
    """Parameters of the algorithms that take the action of the largest value, or any."""

    epsilon: float = param(1.0, "exploration at the start", ge=0, le=1)
    epsilon_min: float = param(0.05, "exploration at the end", ge=0, le=1)
    epsilon_decay: float = param(0.9995, "factor on epsilon at each environment step", gt=0, le=1)
    epsilon_steps: int = param(
        0, "if not 0: epsilon falls linearly over N environment steps instead", ge=0
    )
    double: bool = param(True, "the online network chooses the action that the target rates")
    nactions: int = param(
        5, "bins per dimension when the action space is continuous", ge=2, le=10_000
    )


@dataclass(frozen=True)
class DQNConfig(GreedyConfig):
    """Parameters of the deep Q-network."""

    dueling: bool = param(False, "separate value and advantage outputs")
    loss: Literal["huber", "mse"] = param("huber", "loss on the temporal-difference error")
    data_generation: Literal["learner", "actor", "group"] = param(
        "learner",
        "who computes the targets: the learner at each update; the actor, once, with the"
        " weights it has; or the actor together with the other ranks of its environment group",
    )
    act_with: Literal["online", "target"] = param(
        "online", "which network acts; the target's slow average is the steadier policy"
    )
    burn_in: int = param(
        0, "with an LSTM: first steps of a block that only warm up its memory", ge=0
    )


@dataclass(frozen=True)
class DeepQ(OffPolicy[DQNConfig]):
    """Value-based control of discrete actions.

    With a network that has memory, a row of the replay is what one environment did in a block, and
    ``batch_size`` counts these; the memory at its start is stored with it. Windows of ``n_step`` steps
    then end with the block.
    """

    acts_with = ("q",)
    recurrent = True

    @property
    def recorded(self) -> Mapping[str, ArraySpec]:
        return self.generated

    @property
    def lead_steps(self) -> int:
        return 0 if self.memory else super().lead_steps

    @property
    def greedy(self) -> slice:
        valued = self.config.dueling or self.spec.choices
        return slice(1, None) if valued else slice(None)  # the value moves no action

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
        outputs, after = acting.forward("q", observations, memory)
        q_values = self._values(xp, outputs, observations)
        if rng is None:
            return q_values.argmax(-1), {}, after
        return explored(xp, self.spec, q_values, acting.now["epsilon"], rng), {}, after

    def schedules(self, xp: Namespace, hyper: Hyper, steps: float | Array) -> dict[str, Array]:
        return scheduled(xp, self.config, hyper, steps)

    def schedule_ends(self) -> tuple[ScheduleEnd, ...]:
        return (*super().schedule_ends(), *schedules_end(self.config))

    def acting_params(self, params: Params, target: Params) -> dict[str, Array]:
        shown = dict(params if self.config.act_with == "online" else target)
        if self.config.data_generation == "learner":
            return shown
        online = {f"online/{name}": array for name, array in params.items()}
        return shown | online | {f"target/{name}": array for name, array in target.items()}

    # -- targets made by actors -----------------------------------------------------------------------

    @property
    def generated(self) -> Mapping[str, ArraySpec]:
        made_by_actor = self.config.data_generation != "learner"
        return {"target": ArraySpec((), "float32")} if made_by_actor else {}

    @property
    def generates_in_group(self) -> bool:
        return self.config.data_generation == "group"

    def generate_from(self, xp: Namespace, hyper: Hyper, block: AnyBlock) -> dict[str, Array]:
        return self.transitions(xp, hyper, block)

    def generate(
        self, xp: Namespace, hyper: Hyper, acting: Acting, rows: Batch
    ) -> dict[str, Array]:
        online, target = part(acting.others, "online"), part(acting.others, "target")
        rows = {**rows, "next_observation": acting.normalize(rows["next_observation"])}
        return {"target": self.targets(xp, online, target, rows).astype(np.float32)}

    # -- learning -----------------------------------------------------------------------------------

    @property
    def losses(self) -> tuple[Loss, ...]:
        return (Loss(("q",), self.loss, ("loss", "q_mean", "td_error"), "q"),)

    def loss(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        """The mean loss on the temporal-difference errors."""
        if self.memory:
            batch = by_time(batch)
            targets = self.sequence_targets(xp, state.params, state.target, batch)
            learned = slice(self.config.burn_in, None)  # steps before it only warm the memory up
            q_tm1 = self._learned(xp, params, state.params, batch)
            targets, actions = targets[learned], batch["action"][learned]
        else:
            actions = batch["action"]
            if (made := batch.get("target")) is None:
                made = self.targets(xp, state.params, state.target, batch)
            targets, q_tm1 = made, self.q_values(xp, params, batch["observation"])
        penalty = losses.huber if self.config.loss == "huber" else losses.squared
        chosen = losses.select(xp, q_tm1, actions)  # [N] or [T, N]; of factors [..., factors]
        errors = (targets[..., None] if self.spec.choices else targets) - chosen
        penalties, sizes = penalty(xp, errors), xp.abs(errors)
        if self.spec.choices:
            penalties, sizes = penalties.mean(-1), sizes.mean(-1)
        value = weighted_mean(penalties, batch)
        metrics: Metrics = {
            "loss": value,
            "q_mean": self._mean(xp, q_tm1),
            "td_error": sizes.mean(),
        }
        if "weight" in batch:
            metrics["priority"] = sizes if sizes.ndim == 1 else sizes.mean(0)
        return value, metrics

    def clone_loss(self, xp: Namespace, hyper: Hyper, params: Params, batch: Batch) -> Array:
        """The large-margin loss of the values."""
        q_values = self.q_values(xp, params, batch["observation"])
        return losses.large_margin(xp, q_values, batch["action"]).mean()

    def targets(self, xp: Namespace, params: Params, target: Params, batch: Batch) -> Array:
        """Bellman targets [N]."""
        q_t_value = self.q_values(xp, target, batch["next_observation"])  # [N, A]
        q_t_selector = (
            self.q_values(xp, params, batch["next_observation"])
            if self.config.double
            else q_t_value
        )
        return self._bellman(xp, batch, q_t_value, q_t_selector)

    def _bellman(self, xp: Namespace, batch: Batch, q_value: Array, q_selector: Array) -> Array:
        """Of factors, the mean of what each of them promises (Tavakoli et al., arXiv 1711.08946)."""
        if not self.spec.choices:
            return losses.q_targets(xp, batch["reward"], batch["discount"], q_value, q_selector)
        best = losses.select(xp, q_value, q_selector.argmax(-1))
        return batch["reward"] + batch["discount"] * best.mean(-1)

    def q_values(self, xp: Namespace, params: Params, observations: Array) -> Array:
        """[N, A], or [N, factors, choices]; see ``among``."""
        return self._values(xp, self.apply(xp, params, "q", observations), observations)

    def _values(self, xp: Namespace, outputs: Array, observations: Array) -> Array:
        if self.spec.choices:
            value, advantages = outputs[..., :1], outputs[..., 1:]
            outputs = value + losses.centred(xp, advantages, self.spec.choices)
        elif self.config.dueling:
            outputs = losses.dueling(xp, outputs)
        return self.among(xp, outputs, observations)

    def _mean(self, xp: Namespace, q_values: Array) -> Array:
        """The mean value of actions that are allowed."""
        if _plain(self.spec):
            return q_values.mean()
        allowed = is_allowed(q_values)
        return xp.where(allowed, q_values, 0).sum() / allowed.sum()

    def rows(self, xp: Namespace, hyper: Hyper, block: AnyBlock) -> dict[str, Array]:
        """What the replay keeps: transitions, states with their ready targets, or sequences."""
        if self.memory:
            return self.sequences(xp, hyper, block)
        if self.config.data_generation == "learner":
            return self.transitions(xp, hyper, block)
        steps, targets = steps_of(xp, block), block.recorded["target"]
        arrays = {"observation": steps.observations, "action": steps.actions, "target": targets}
        return self.from_starts(block, steps, arrays)

    # -- with memory: batches are [N, T, ...] in the replay and [T, N, ...] here ----------------------

    def sequences(self, xp: Namespace, hyper: Hyper, block: AnyBlock) -> dict[str, Array]:
        """What each environment did in the block [B, T, ...], and the memory it began with [B, ...]."""
        cfg, steps = self.config, len(block.rewards)
        if cfg.burn_in >= steps:
            raise ConfigError(f"burn_in={cfg.burn_in} leaves nothing of blocks of {steps} steps")
        earned, last = self.windows(xp, hyper, block)
        arrays = {
            "observation": block.observations[:-1],
            "next_observation": block.next_observations(),
            "action": block.actions,
            **earned,
            "last": last,
            "reset": xp.concatenate([xp.zeros_like(block.ended[:1]), block.ended[:-1]]),
        }
        memory = {f"memory/{name}": block.recorded[f"memory/{name}"][0] for name in self.memory}
        return {**{name: array.swapaxes(0, 1) for name, array in arrays.items()}, **memory}

    def sequence_targets(
        self, xp: Namespace, params: Params, target: Params, batch: Batch
    ) -> Array:
        """Bellman targets [T, N]."""
        ahead = self._ahead(xp, target, batch)
        chooser = self._ahead(xp, params, batch) if self.config.double else ahead
        last = batch["last"].reshape(*batch["last"].shape, *[1] * (ahead.ndim - 2))
        ahead, chooser = (xp.take_along_axis(q, last, 0) for q in (ahead, chooser))
        return self._bellman(xp, batch, ahead, chooser)

    def _along(self, xp: Namespace, params: Params, batch: Batch) -> tuple[Array, Memory]:
        """Action values [T, N, A], and the memory after each step."""
        memory = {name: batch[f"memory/{name}"] for name in self.memory}
        outputs, after = unroll(
            xp, self.networks["q"], part(params, "q"), batch["observation"], memory, batch["reset"]
        )
        return self._values(xp, outputs, batch["observation"]), after

    def _learned(self, xp: Namespace, params: Params, warming: Params, batch: Batch) -> Array:
        """Action values of the steps after the burn-in, whose memory the parameters ``warming`` make:
        the same numbers, but of the state before the update, so that no gradient enters it."""
        steps = self.config.burn_in
        if not steps:
            return self._along(xp, params, batch)[0]
        after = self._along(xp, warming, _cut(batch, slice(steps)))[1]
        memory = {f"memory/{name}": array[-1] for name, array in after.items()}
        return self._along(xp, params, {**_cut(batch, slice(steps, None)), **memory})[0]

    def _ahead(self, xp: Namespace, params: Params, batch: Batch) -> Array:
        """Action values [T, N, A] of where each step truly led, with the memory it led there with."""
        after = {name: flat(array) for name, array in self._along(xp, params, batch)[1].items()}
        seen = batch["next_observation"]
        outputs, _ = self.networks["q"].step(xp, part(params, "q"), flat(seen), after)
        values = self._values(xp, outputs, flat(seen))
        return values.reshape(*seen.shape[:2], *values.shape[1:])


def _plain(spec: EnvSpec) -> bool:
    """Whether there is one list of actions, of which all are always allowed."""
    return spec.n_actions is not None and spec.mask is None


def explored(
    xp: Namespace, spec: EnvSpec, q_values: Array, epsilon: float | Array, rng: Noise
) -> Array:
    """The actions of the largest values, or with probability ``epsilon`` any that are allowed."""
    uniform = rng.uniform(1 + (len(spec.choices) or 1))
    explore = epsilon_greedy if _plain(spec) else epsilon_greedy_among
    return explore(xp, q_values, epsilon, uniform)


def scheduled(
    xp: Namespace, config: GreedyConfig, hyper: Hyper, steps: float | Array
) -> dict[str, Array]:
    """The schedule of exploration, see ``Algorithm.schedules``."""
    decay = (hyper["epsilon"], hyper["epsilon_min"], hyper["epsilon_decay"])
    return {"epsilon": epsilon_at(steps, *decay, config.epsilon_steps, xp=xp)}


def schedules_end(cfg: GreedyConfig) -> tuple[ScheduleEnd, ...]:
    """Where it ends, if it does."""
    decisive = ("epsilon", "epsilon_min", "epsilon_decay")
    last = epsilon_end(cfg.epsilon, cfg.epsilon_min, cfg.epsilon_decay, cfg.epsilon_steps)
    return (ScheduleEnd("epsilon", cfg.epsilon_min, last, parameters=decisive),) * (last > 0)


def by_time(batch: Batch) -> Batch:
    """Sequences of a replay [N, T, ...] as [T, N, ...]."""
    return {
        name: array if name.startswith(("memory/", "weight")) else array.swapaxes(0, 1)
        for name, array in batch.items()
    }


def _cut(batch: Batch, steps: slice) -> Batch:
    """These steps of sequences [T, N, ...]; what has no axis of time is kept whole."""
    return {n: a if n.startswith(("memory/", "weight")) else a[steps] for n, a in batch.items()}


def make(spec: EnvSpec, config: DQNConfig, network: MakeNetwork) -> DeepQ:
    """The algorithm for an environment; ConfigError when it cannot learn there."""
    if not spec.discrete:
        raise ConfigError(f"DQN-v0 needs discrete actions; {spec.env_id} has continuous ones")
    algorithm = DeepQ(
        spec, config, {"q": network(spec.action_size + bool(config.dueling or spec.choices))}
    )
    if algorithm.memory and spec.agents_change:
        raise ConfigError("agents_change needs a network without memory with DQN-v0: use an MLP")
    if algorithm.memory and config.data_generation != "learner":
        raise ConfigError("data_generation must be learner with a network that has memory")
    if config.normalize_rewards and config.data_generation != "learner":
        raise ConfigError("data_generation must be learner when normalize_rewards is on")
    return algorithm


class DQN(NetworkAgent[DQNConfig]):
    """Deep Q-learning; a Box action space is discretised, see ``nactions``."""

    Config = DQNConfig
    defaults: ClassVar[Mapping[str, Any]] = {
        "models": {"MLP": {"layer_norm": True}, "CNN": {"layer_norm": True}}
    }
    action_kind = "discrete"
    factors_actions = respects_masks = True
    metrics = ("loss", "q_mean", "td_error", "epsilon")
    make_algorithm = staticmethod(make)

    @classmethod
    def discrete_bins(cls, config: DQNConfig) -> int:
        return config.nactions
