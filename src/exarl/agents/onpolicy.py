"""What the agents that learn from fresh blocks share: a policy, a value, and advantages.

Blocks that were acted with older weights are corrected by V-trace (arXiv 1802.01561); for fresh ones it
is generalised advantage estimation (arXiv 1506.02438).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from exarl.agents.acting import Acting, memory_of
from exarl.agents.base import MakeNetwork, Network
from exarl.agents.learned import Learned, LearnedConfig
from exarl.config import param
from exarl.learning import distributions as dist
from exarl.learning.losses import select
from exarl.learning.returns import vtrace
from exarl.types import Arrays, ArraySpec, Block, EnvSpec


@dataclass(frozen=True)
class OnPolicyConfig(LearnedConfig):
    """Parameters of the agents that learn from fresh blocks."""

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


class OnPolicy(Learned):
    """Discrete actions by a categorical policy, continuous ones by a Gaussian with one standard
    deviation for all states. A subclass gives the loss of a batch."""

    action_kind = "any"
    recurrent = True
    on_policy = True

    def __init__(self, spec: EnvSpec, config: Any, network: MakeNetwork, seed: int) -> None:
        self.discrete = spec.n_actions is not None
        self.size = spec.n_actions or int(np.prod(spec.action.shape))
        self.greedy = slice(self.size)
        self.recorded = {"log_prob": ArraySpec((), "float32")}
        super().__init__(spec, config, network, seed)

    def make_networks(self, make: MakeNetwork) -> dict[str, Network]:
        policy = make(self.size)
        if self.config.share_network or memory_of(policy):
            return {"policy": make(self.size + 1)}  # the last output is the value
        return {"policy": policy, "value": make(1)}

    def other_params(self) -> Arrays:
        return {} if self.discrete else {"log_std": np.full(self.size, self.config.log_std, "f4")}

    def shown(self, state: Mapping[str, Any]) -> dict[str, Any]:
        own = ("policy/", "log_std")
        return {n: a for n, a in state["params"].items() if n.startswith(own)}

    # -- acting ---------------------------------------------------------------------------------

    def act(
        self, xp: Any, acting: Acting, observations: Any, rng: Any, memory: Any
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        outputs, after = self.outputs(xp, acting, "policy", observations, memory)
        outputs = outputs[:, : self.size]
        if self.discrete:
            if rng is None:
                return outputs.argmax(-1), {}, after
            actions = dist.categorical_sample(xp, outputs, rng.uniform(1)[:, 0])
            chosen = dist.log_softmax(xp, outputs)[xp.arange(len(actions)), actions]
            return actions, {"log_prob": chosen}, after
        shape = (len(observations), *self.spec.action.shape)
        if rng is None:
            return outputs.reshape(shape), {}, after
        log_std = acting[""]["log_std"]
        actions = (outputs + xp.exp(log_std) * rng.normal(self.size)).astype(np.float32)
        log_prob = dist.gaussian_log_prob(xp, actions, outputs, log_std)
        return actions.reshape(shape), {"log_prob": log_prob}, after

    # -- learning -------------------------------------------------------------------------------

    def log_prob_entropy(self, xp: Any, params: Any, outputs: Any, actions: Any) -> Any:
        """Of [..., A] outputs of the policy: log-probability of ``actions``, and entropy, [...]."""
        if self.discrete:
            log_p = dist.log_softmax(xp, outputs)
            return select(xp, log_p, actions), dist.categorical_entropy(xp, outputs)
        log_std = params["log_std"]
        log_prob = dist.gaussian_log_prob(xp, actions, outputs, log_std)
        return log_prob, dist.gaussian_entropy(xp, log_std) + xp.zeros_like(log_prob)

    def evaluate(self, compiled: Any, params: Any, batch: Any) -> tuple[Any, Any]:
        """The policy's outputs [..., A] and the values [...] along a batch.

        [N, ...] is independent rows; with memory it is [T, N, ...] from ``memory/*`` [N, ...] on.
        """
        if not self.memory:
            return self._heads(compiled.jnp, params, batch["observation"])
        outputs, _ = self._along(compiled, params, batch)
        return outputs[..., :-1], outputs[..., -1]

    def _heads(self, xp: Any, params: Any, observations: Any) -> tuple[Any, Any]:
        outputs = self.networks["policy"].apply(xp, self.part(params, "policy"), observations)
        if "value" not in self.networks:
            return outputs[:, :-1], outputs[:, -1]
        values = self.networks["value"].apply(xp, self.part(params, "value"), observations)
        return outputs, values[:, 0]

    def _along(self, compiled: Any, params: Any, batch: Any) -> Any:
        memory = {name: batch[f"memory/{name}"] for name in self.memory}
        network, own = self.networks["policy"], self.part(params, "policy")
        return compiled.unrolled(network, own, batch["observation"], memory, batch["reset"])

    def next_values(self, compiled: Any, params: Any, batch: Any) -> Any:
        """Values [T, B] of where each step truly led."""
        xp, seen = compiled.jnp, batch["next_observation"]
        flat = seen.reshape(-1, *seen.shape[2:])
        if self.memory:
            _, after = self._along(compiled, params, batch)
            memory = {name: array.reshape(-1, *array.shape[2:]) for name, array in after.items()}
            own = self.part(params, "policy")
            outputs, _ = self.networks["policy"].step(xp, own, flat, memory)
            return outputs[:, -1].reshape(seen.shape[:2])
        return self._heads(xp, params, flat)[1].reshape(seen.shape[:2])

    def data(self, compiled: Any, state: Any, inputs: Any) -> Any:
        """What the updates of a block learn from: the inputs with values, advantages and targets,
        as rows [T * B, ...], or with memory as sequences [T, B, ...]."""
        xp, cfg, params = compiled.jnp, self.config, state["params"]
        batch = self.normal_batch(xp, state, inputs)
        shape = batch["reward"].shape
        rows = batch if self.memory else {n: a.reshape(-1, *a.shape[2:]) for n, a in batch.items()}
        outputs, values = self.evaluate(compiled, params, rows)
        log_prob, _ = self.log_prob_entropy(xp, params, outputs, rows["action"])
        # Without V-trace nothing lags: what acted is what learns, and there is nothing to correct.
        log_prob = log_prob.reshape(shape) if cfg.vtrace else batch["log_prob"]
        values, ratio = values.reshape(shape), xp.exp(log_prob - batch["log_prob"])
        targets, advantages = vtrace(
            xp,
            values,
            self.next_values(compiled, params, batch),
            batch["reward"],
            cfg.gamma * (1.0 - batch["terminated"]),
            1.0 * batch["ended"],
            ratio,
            cfg.gae_lambda,
            cfg.clip_rho,
            cfg.clip_c,
        )
        made = {"log_prob": log_prob, "value": values, "target": targets, "advantage": advantages}
        if not self.memory:
            made = {name: array.reshape(-1) for name, array in made.items()}
        kept = ("observation", "action", "reset", *(f"memory/{name}" for name in self.memory))
        return {**{name: rows[name] for name in kept if name in rows}, **made}

    def inputs(self, block: Block, xp: Any = np) -> Arrays:
        """A block as the compiled update takes it."""
        actions = block.actions
        if not self.discrete:
            actions = actions.reshape(*actions.shape[:2], self.size)
        made = {
            "observation": block.observations[:-1],
            "next_observation": block.next_observations(),
            "action": actions,
            "reward": self.rewards(block),
            "terminated": block.terminated,
            "ended": block.ended,
            "log_prob": block.recorded["log_prob"],
        }
        if self.memory:
            ended = block.ended
            made["reset"] = xp.concatenate([xp.zeros_like(ended[:1]), ended[:-1]])
            made |= {f"memory/{n}": block.recorded[f"memory/{n}"][0] for n in self.memory}
        return made

    def value_loss(self, xp: Any, values: Any, batch: Any) -> Any:
        return 0.5 * ((values - batch["target"]) ** 2).mean()

    def total(self, policy_loss: Any, value_loss: Any, entropy: Any) -> tuple[Any, dict[str, Any]]:
        """The whole loss of a batch, and its terms."""
        cfg = self.config
        loss = policy_loss + cfg.value_scale * value_loss - cfg.entropy_scale * entropy
        terms = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        return loss, {"loss": loss, **terms}

    def advantages(self, xp: Any, batch: Any) -> Any:
        """Those of a batch, normalised where asked."""
        found = batch["advantage"]
        if not self.config.normalize_advantages:
            return found
        return (found - found.mean()) / (found.std() + 1e-8)
