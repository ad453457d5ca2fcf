"""What the algorithms that learn from fresh blocks share: a policy, a value, and advantages.

Blocks that were acted with older weights are corrected by V-trace (arXiv 1802.01561); for fresh ones it
is generalised advantage estimation (arXiv 1506.02438).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from exarl.agents.algorithm import (
    Acting,
    Algorithm,
    AlgorithmConfig,
    Hyper,
    Loss,
    Noise,
    TrainState,
    flat,
    group,
    memory_of,
    part,
    unroll,
)
from exarl.agents.base import MakeNetwork
from exarl.agents.blocks import KNOWN, AnyBlock, present
from exarl.agents.constraints import COSTS, Constraints
from exarl.config import param
from exarl.learning import distributions as dist
from exarl.learning.losses import select
from exarl.learning.returns import vtrace
from exarl.networks.network import Network
from exarl.types import Array, Arrays, ArraySpec, Batch, EnvSpec, Memory, Metrics, Namespace, Params


@dataclass(frozen=True)
class OnPolicyConfig(AlgorithmConfig):
    """Parameters of the algorithms that learn from fresh blocks."""

    gae_lambda: float = param(0.95, "0: one-step advantages, 1: sums of all rewards", ge=0, le=1)
    vtrace: bool = param(True, "correct blocks that were acted with older weights (V-trace)")
    clip_rho: float = param(1.0, "V-trace: largest weight of a step", gt=0)
    clip_c: float = param(1.0, "V-trace: largest weight that is passed on to earlier steps", gt=0)
    value_scale: float = param(0.5, "weight of the value's loss", ge=0)
    entropy_scale: float = param(0.0, "weight of the entropy's bonus", ge=0)
    normalize_advantages: bool = param(True, "advantages of a batch with mean 0 and deviation 1")
    share_network: bool = param(
        False, "policy and value as outputs of one network; always so with an LSTM"
    )
    log_std: float = param(0.0, "continuous actions: logarithm of the first standard deviation")
    max_grad_norm: float | None = param(0.5, "clip the gradient's norm; null: do not", gt=0)
    constraints: tuple[str, ...] = param(
        (),
        "limits on numbers in info: on their sums over an episode, as in 'cost<=25', or their means per"
        " step, as in 'mean(cost)<=0.1'",
    )
    constraint_rate: float = param(
        0.5,
        "how far a constraint's multiplier moves in a block whose episodes are beyond by a limit",
        gt=0,
    )
    constraint_damping: float = param(
        1.0, "how much higher a multiplier is while episodes are beyond by a limit", ge=0
    )


ON_POLICY_DEFAULTS: Mapping[str, Any] = {
    "models": {
        "MLP": {"hidden": (64, 64), "activation": "tanh", "init": "orthogonal", "output_gain": 0.01}
    }
}
"""Small tanh networks with orthogonal initial values and a nearly uniform first policy, after
Andrychowicz et al. 2020 (arXiv 2006.05990)."""

C_co = TypeVar("C_co", bound=OnPolicyConfig, covariant=True)


@dataclass(frozen=True)
class ActorCritic(Algorithm[C_co]):
    """A policy and a value; what is missing is the loss.

    Discrete actions come from a categorical policy, continuous ones from a Gaussian with one standard
    deviation for all states; of mixed ones, the first outputs are the Gaussian's means. Batches are
    independent rows [N, ...] or, with memory, [T, N, ...].
    """

    recurrent = True

    @property
    def discrete(self) -> bool:
        return self.spec.discrete

    @property
    def size(self) -> int:
        """Actions to choose from, or dimensions of an action."""
        return self.spec.action_size

    @property
    def greedy(self) -> slice:
        return slice(self.size)

    @property
    def recorded(self) -> Mapping[str, ArraySpec]:
        return {"log_prob": ArraySpec((), "float32"), **Constraints.of(self.config).recorded}

    def init(self, rng: np.random.Generator, hyper: Hyper) -> Arrays:
        params = super().init(rng, hyper)
        if self.discrete:
            return params
        return {**params, "log_std": np.full(self.spec.numbers, hyper["log_std"], "f4")}

    def acting_params(self, params: Params, target: Params) -> dict[str, Array]:
        return group(params, ("policy", "log_std"))

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
        outputs, after = acting.forward("policy", observations, memory)
        outputs = outputs[:, : self.size]
        if self.spec.mixed:
            return *self._act_mixed(xp, acting, outputs, observations, rng), after
        if self.discrete:
            logits = self.among(xp, outputs, observations)
            if rng is None:
                return logits.argmax(-1), {}, after
            actions = self._drawn(xp, logits, rng)
            if self.spec.choices:
                chosen = select(xp, dist.log_softmax(xp, logits), actions).sum(-1)
            else:
                chosen = dist.log_softmax(xp, logits)[xp.arange(len(actions)), actions]
            return actions, {"log_prob": chosen}, after
        shape = (len(observations), *self.spec.action.shape)
        if rng is None:
            return outputs.reshape(shape), {}, after
        log_std = acting.others["log_std"]
        actions = (outputs + xp.exp(log_std) * rng.normal(self.size)).astype(np.float32)
        log_prob = dist.gaussian_log_prob(xp, actions, outputs, log_std)
        return actions.reshape(shape), {"log_prob": log_prob}, after

    def _drawn(self, xp: Namespace, logits: Array, rng: Noise) -> Array:
        """Actions [B] or [B, factors]."""
        if self.spec.choices:
            return dist.sample_among(xp, logits, rng.uniform(len(self.spec.choices)))
        draw = dist.categorical_sample if self.spec.mask is None else dist.sample_among
        return draw(xp, logits, rng.uniform(1)[:, 0])

    def _act_mixed(
        self,
        xp: Namespace,
        acting: Acting,
        outputs: Array,
        observations: Array,
        rng: Noise | None,
    ) -> tuple[Array, dict[str, Array]]:
        outputs = self.among(xp, outputs, observations)
        mean, logits = self._parts(xp, outputs)
        if rng is None:
            return self._joined(xp, mean, logits.argmax(-1)), {}
        log_std = acting.others["log_std"]
        numbers = mean + xp.exp(log_std) * rng.normal(self.spec.numbers)
        chosen = dist.sample_among(xp, logits, rng.uniform(len(self.spec.choices)))
        actions = self._joined(xp, numbers, chosen)
        log_prob, _ = self._mixed_log_prob_entropy(xp, log_std, outputs, actions)
        return actions, {"log_prob": log_prob}

    def _joined(self, xp: Namespace, numbers: Array, chosen: Array) -> Array:
        """Mixed actions [B, numbers + factors]."""
        return xp.concatenate([numbers.astype(np.float32), chosen.astype(np.float32)], -1)

    def _parts(self, xp: Namespace, outputs: Array) -> tuple[Array, Array]:
        """Means [..., numbers] and logits [..., factors, choices] in what ``among`` gave."""
        size = self.spec.numbers
        logits = dist.among(xp, outputs[..., size:], None, self.spec.choices)
        return outputs[..., :size], logits

    def among(self, xp: Namespace, outputs: Array, observations: Array) -> Array:
        """As of every algorithm; of mixed actions [..., A] with the means as they are."""
        if not self.spec.mixed:
            return super().among(xp, outputs, observations)
        if (allowed := self.spec.allowed(observations)) is None:
            return outputs
        size = self.spec.numbers
        logits = dist.among(xp, outputs[..., size:], allowed, ())
        return xp.concatenate([outputs[..., :size], logits], -1)

    # -- learning -----------------------------------------------------------------------------------

    @property
    def losses(self) -> tuple[Loss, ...]:
        return (Loss((*self.networks, "log_std"), self.loss, self.terms, "all"),)

    terms: ClassVar[tuple[str, ...]] = ("loss", "policy_loss", "value_loss", "entropy")
    """The metrics of the loss."""

    @abstractmethod
    def loss(
        self, xp: Namespace, hyper: Hyper, params: Params, state: TrainState, batch: Batch
    ) -> tuple[Array, Metrics]:
        """The whole loss of a batch, and its terms."""

    def rows(self, xp: Namespace, hyper: Hyper, block: AnyBlock) -> dict[str, Array]:
        """A block as ``prepare`` takes it."""
        actions = block.actions
        if not self.discrete:
            actions = actions.reshape(*actions.shape[:2], -1)
        made = {
            "observation": block.observations[:-1],
            "next_observation": block.next_observations(),
            "action": actions,
            "reward": self.rewards(hyper, block),
            "terminated": block.terminated,
            "ended": block.ended,
            "log_prob": block.recorded["log_prob"],
        }
        if self.spec.agents_change:
            made[KNOWN] = present(xp, block)
        if self.config.constraints:
            made[COSTS] = block.recorded[COSTS][:, :, 0]
        if self.memory:
            ended = block.ended
            if self.spec.agents_change:  # an agent that comes begins an episode
                ended = ended | ~present(xp, block)
            made["reset"] = xp.concatenate([xp.zeros_like(ended[:1]), ended[:-1]])
            made |= {f"memory/{n}": block.recorded[f"memory/{n}"][0] for n in self.memory}
        return made

    def prepare(self, xp: Namespace, hyper: Hyper, state: TrainState, batch: Batch) -> Batch:
        """What the updates of a block learn from: the block with values, advantages and targets,
        as rows [T * B, ...], or with memory as sequences [T, B, ...]."""
        params, shape = state.params, batch["reward"].shape
        rows = batch if self.memory else {name: flat(array) for name, array in batch.items()}
        outputs, values = self.evaluate(xp, params, rows)
        log_prob, _ = self.log_prob_entropy(xp, params, outputs, rows["action"])
        # Without V-trace nothing lags: what acted is what learns, and there is nothing to correct.
        log_prob = log_prob.reshape(shape) if self.config.vtrace else batch["log_prob"]
        values, ratio = values.reshape(shape), xp.exp(log_prob - batch["log_prob"])
        targets, advantages = vtrace(
            xp,
            values,
            self.next_values(xp, params, batch),
            batch["reward"],
            hyper["gamma"] * (1.0 - batch["terminated"]),
            1.0 * batch["ended"],
            ratio,
            hyper["gae_lambda"],
            hyper["clip_rho"],
            hyper["clip_c"],
        )
        made = {"log_prob": log_prob, "value": values, "target": targets, "advantage": advantages}
        if not self.memory:
            made = {name: array.reshape(-1) for name, array in made.items()}
        kept = (
            "observation",
            "action",
            "reset",
            KNOWN,
            *(f"memory/{name}" for name in self.memory),
        )
        return {**{name: rows[name] for name in kept if name in rows}, **made}

    def log_prob_entropy(
        self, xp: Namespace, params: Params, outputs: Array, actions: Array
    ) -> tuple[Array, Array]:
        """Of what ``evaluate`` gives of the policy: log-probability of ``actions``, and entropy,
        [...]; those of factors, which are independent, are added up."""
        if self.discrete:
            chosen = select(xp, dist.log_softmax(xp, outputs), actions)
            entropy = dist.categorical_entropy(xp, outputs)
            return (chosen.sum(-1), entropy.sum(-1)) if self.spec.choices else (chosen, entropy)
        log_std = params["log_std"]
        if self.spec.mixed:
            return self._mixed_log_prob_entropy(xp, log_std, outputs, actions)
        log_prob = dist.gaussian_log_prob(xp, actions, outputs, log_std)
        return log_prob, dist.gaussian_entropy(xp, log_std) + xp.zeros_like(log_prob)

    def _mixed_log_prob_entropy(
        self, xp: Namespace, log_std: Array, outputs: Array, actions: Array
    ) -> tuple[Array, Array]:
        mean, logits = self._parts(xp, outputs)
        numbers, chosen = actions[..., : self.spec.numbers], actions[..., self.spec.numbers :]
        of_numbers = dist.gaussian_log_prob(xp, numbers, mean, log_std)
        of_chosen = select(xp, dist.log_softmax(xp, logits), chosen).sum(-1)
        entropy = dist.categorical_entropy(xp, logits).sum(-1)
        return of_numbers + of_chosen, dist.gaussian_entropy(xp, log_std) + entropy

    def evaluate(self, xp: Namespace, params: Params, batch: Batch) -> tuple[Array, Array]:
        """The policy's outputs [..., A], of what is allowed (``among``), and the values [...] along a
        batch."""
        seen = batch["observation"]
        if self.memory:
            along, _ = self._along(xp, params, batch)
            outputs, values = along[..., :-1], along[..., -1]
        else:
            outputs, values = self._heads(xp, params, seen)
        return self.among(xp, outputs, seen), values

    def next_values(self, xp: Namespace, params: Params, batch: Batch) -> Array:
        """Values [T, B] of where each step truly led."""
        seen = batch["next_observation"]
        if self.memory:
            after = {n: flat(array) for n, array in self._along(xp, params, batch)[1].items()}
            own = part(params, "policy")
            outputs, _ = self.networks["policy"].step(xp, own, flat(seen), after)
            return outputs[:, -1].reshape(seen.shape[:2])
        return self._heads(xp, params, flat(seen))[1].reshape(seen.shape[:2])

    def _heads(self, xp: Namespace, params: Params, observations: Array) -> tuple[Array, Array]:
        outputs = self.apply(xp, params, "policy", observations)
        if "value" not in self.networks:
            return outputs[:, :-1], outputs[:, -1]
        return outputs, self.apply(xp, params, "value", observations)[:, 0]

    def _along(self, xp: Namespace, params: Params, batch: Batch) -> tuple[Array, Memory]:
        memory = {name: batch[f"memory/{name}"] for name in self.memory}
        network, own = self.networks["policy"], part(params, "policy")
        return unroll(xp, network, own, batch["observation"], memory, batch["reset"])

    def advantages(self, xp: Namespace, batch: Batch) -> Array:
        """Those of a batch, normalised if so configured."""
        found = batch["advantage"]
        if not self.config.normalize_advantages:
            return found
        if KNOWN not in batch:
            return (found - found.mean()) / (found.std() + 1e-8)
        centred = found - mean(found, batch)
        return centred / (xp.sqrt(mean(centred**2, batch)) + 1e-8)


def mean(values: Array, batch: Batch) -> Array:
    """The mean over the steps of a batch that there were."""
    if (known := batch.get(KNOWN)) is None:
        return values.mean()
    return (values * known).sum() / known.sum().clip(1)


def value_loss(values: Array, batch: Batch) -> Array:
    """Half the mean squared error of the values."""
    return 0.5 * mean((values - batch["target"]) ** 2, batch)


def total(
    hyper: Hyper, policy_loss: Array, value_loss: Array, entropy: Array
) -> tuple[Array, Metrics]:
    """The whole loss of a batch, and its terms."""
    loss = policy_loss + hyper["value_scale"] * value_loss - hyper["entropy_scale"] * entropy
    terms = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
    return loss, {"loss": loss, **terms}


def networks_for(spec: EnvSpec, config: OnPolicyConfig, make: MakeNetwork) -> dict[str, Network]:
    """A policy and a value, or one network for both, whose last output is then the value."""
    size = spec.action_size
    policy = make(size)
    if config.share_network or memory_of(policy):
        return {"policy": make(size + 1)}
    return {"policy": policy, "value": make(1)}
