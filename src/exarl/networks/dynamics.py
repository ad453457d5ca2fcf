"""A learned model of an environment: an ensemble of networks that predict the next step.

Each member predicts a Gaussian of the change of the observation and of the reward, and whether the
episode terminates (Chua et al. 2018, arXiv 1805.12114). All members are one batched network: every
parameter has a leading axis of members.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from exarl.networks.layers import silu
from exarl.types import Array, Arrays, Namespace, Params

FAR = 20.0
"""Predictions further from the mean of what was seen than this many deviations are no states."""


class Scales(NamedTuple):
    """Means and deviations of what the networks are given and of what they predict."""

    in_mean: Array  # [inputs]
    in_std: Array
    out_mean: Array  # [outputs]: of changes of the observation, then of the reward
    out_std: Array


class Prediction(NamedTuple):
    """What the members predict, [..., N, outputs] in units of ``Scales``."""

    mean: Array
    log_var: Array
    ends: Array  # [..., N], the logit of a termination


class NextStep(NamedTuple):
    """A predicted step of N environments."""

    observation: Array  # [N, observation]
    reward: Array  # [N]
    terminated: Array  # [N] bool
    sound: Array  # [N] bool: whether the observation is near what was ever seen


@dataclass(frozen=True)
class Dynamics:
    """``members`` networks over flattened observations and actions.

    Discrete actions (``n_actions``) are given as one-hot vectors.
    """

    observation: int
    action: int
    members: int
    hidden: tuple[int, ...]
    n_actions: int | None = None

    @property
    def inputs(self) -> int:
        return self.observation + (self.n_actions or self.action)

    @property
    def outputs(self) -> int:
        """Changes of the observation, and the reward."""
        return self.observation + 1

    def init(self, rng: np.random.Generator) -> Arrays:
        """``{layer}/w`` [members, fan-in, units], ``{layer}/b`` [members, 1, units], and the bounds
        of the logarithm of the variance [outputs]."""
        sizes = [self.inputs, *self.hidden, 2 * self.outputs + 1]
        params: Arrays = {
            "log_var/low": np.full(self.outputs, -10.0, np.float32),
            "log_var/high": np.full(self.outputs, 0.5, np.float32),
        }
        for layer, (fan_in, units) in enumerate(pairwise(sizes)):
            bound = 1 / np.sqrt(fan_in)
            shape = (self.members, fan_in, units)
            params[f"{layer}/w"] = rng.uniform(-bound, bound, shape).astype(np.float32)
            params[f"{layer}/b"] = np.zeros((self.members, 1, units), np.float32)
        return params

    def encoded(self, xp: Namespace, observations: Array, actions: Array) -> Array:
        """[N, inputs]"""
        count = len(observations)
        if self.n_actions is not None:
            given = xp.arange(self.n_actions) == actions.reshape(count, 1)
        else:
            given = actions.reshape(count, -1)
        seen = observations.reshape(count, -1)
        return xp.concatenate([seen, given.astype(np.float32)], 1).astype(np.float32)

    def apply(self, xp: Namespace, params: Params, scaling: Scales, inputs: Array) -> Prediction:
        """What the members predict of ``inputs`` [N, inputs], or each of its own [members, N, inputs].

        ``params`` may be those of some members only (``chosen``).
        """
        x = (inputs - scaling.in_mean) / scaling.in_std
        last = len(self.hidden)
        for layer in range(last + 1):
            x = x @ params[f"{layer}/w"] + params[f"{layer}/b"]
            x = silu(xp, x) if layer < last else x
        mean, spread, ends = x[..., : self.outputs], x[..., self.outputs : -1], x[..., -1]
        low, high = params["log_var/low"], params["log_var/high"]
        log_var = high - _softplus(xp, high - spread)
        return Prediction(mean, low + _softplus(xp, log_var - low), ends)

    def targets(
        self, observations: Array, following: Array, rewards: Array, xp: Namespace
    ) -> Array:
        """What is to be predicted [N, outputs], in the environment's units."""
        count = len(observations)
        change = (following - observations).reshape(count, -1)
        return xp.concatenate([change, rewards.reshape(count, 1)], 1).astype(np.float32)

    def next_step(
        self,
        xp: Namespace,
        params: Params,
        scaling: Scales,
        observations: Array,
        actions: Array,
        noise: Array | None,
    ) -> NextStep:
        """A step of N environments, of which each member of ``params`` predicts an equal part, in
        their order; a draw with ``noise`` [N, outputs], or without it the mean."""
        members = len(params["0/w"])
        inputs = self.encoded(xp, observations, actions).reshape(members, -1, self.inputs)
        found = self.apply(xp, params, scaling, inputs)
        mean = found.mean.reshape(-1, self.outputs)
        if noise is not None:
            mean = mean + xp.exp(0.5 * found.log_var.reshape(-1, self.outputs)) * noise
        made = scaling.out_mean + scaling.out_std * mean
        observation = observations.reshape(len(observations), -1) + made[:, :-1]
        size = self.observation
        away = (observation - scaling.in_mean[:size]) / scaling.in_std[:size]
        sound = (xp.abs(away) < FAR).all(1) & xp.isfinite(made).all(1)  # NaN is not below FAR
        return NextStep(observation, made[:, -1], found.ends.reshape(-1) > 0, sound)


def chosen(params: Params, members: Array) -> dict[str, Array]:
    """The parameters of some members."""
    return {n: a if n.startswith("log_var/") else a[members] for n, a in params.items()}


def _softplus(xp: Namespace, x: Array) -> Array:
    return xp.logaddexp(x, 0.0)
