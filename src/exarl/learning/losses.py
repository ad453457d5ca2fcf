"""Losses and their targets, for batches [N] and action values [N, A]."""

from __future__ import annotations

import numpy as np

from exarl.types import Array, Namespace


def select(xp: Namespace, values: Array, actions: Array) -> Array:
    """``values[i, actions[i]]`` -> [N], as a masked sum: its gradient needs no scatter."""
    chosen = xp.arange(values.shape[-1]) == actions[..., None]  # [N, A]
    return xp.where(chosen, values, 0).sum(-1)


def q_targets(
    xp: Namespace, r_t: Array, discount_t: Array, q_t_value: Array, q_t_selector: Array
) -> Array:
    """Bellman targets [N]: the selector's best action, rated by the value network.

    With one network for both this is Q-learning (Mnih et al. 2015); with the online network selecting
    and the target network rating it is double Q-learning (van Hasselt et al. 2016, arXiv 1509.06461).
    """
    best = q_t_selector.argmax(-1)
    return r_t + discount_t * select(xp, q_t_value, best)


def dueling(xp: Namespace, outputs: Array) -> Array:
    """Action values [N, A] from a value and A advantages [N, 1 + A] (arXiv 1511.06581)."""
    value, advantages = outputs[..., :1], outputs[..., 1:]
    return value + advantages - advantages.mean(-1, keepdims=True)


def centred(xp: Namespace, advantages: Array, choices: tuple[int, ...]) -> Array:
    """Advantages [N, A] of all factors' choices, those of each factor less their mean."""
    if len(set(choices)) == 1:
        split = advantages.reshape(*advantages.shape[:-1], len(choices), choices[0])
        return (split - split.mean(-1, keepdims=True)).reshape(advantages.shape)
    parts = xp.split(advantages, np.cumsum(choices)[:-1], axis=-1)
    return xp.concatenate([part - part.mean(-1, keepdims=True) for part in parts], -1)


def huber(xp: Namespace, errors: Array, delta: float = 1.0) -> Array:
    """Quadratic up to ``delta``, linear beyond."""
    size = xp.abs(errors)
    inside = xp.minimum(size, delta)
    return 0.5 * inside**2 + delta * (size - inside)


def squared(xp: Namespace, errors: Array) -> Array:
    """Half the square."""
    return 0.5 * errors**2


def quantile_huber(xp: Namespace, quantiles: Array, targets: Array) -> Array:
    """The loss [N] of quantiles [N, K], for levels at the middles of K even parts, on equally likely
    targets [N, L]: the mean over these, summed over the levels (arXiv 1710.10044)."""
    count = quantiles.shape[-1]
    levels = (xp.arange(count, dtype=np.float32) + 0.5) / count
    errors = targets[:, None, :] - quantiles[:, :, None]  # [N, K, L]
    weights = xp.abs(levels[:, None] - (errors < 0))
    return (weights * huber(xp, errors)).mean(-1).sum(-1)


MARGIN = 0.8
"""By how much the value of the right action is to exceed all others."""


def large_margin(xp: Namespace, q_values: Array, actions: Array) -> Array:
    """By how much the best of the other actions, with a margin added, exceeds the one given, [...].

    The loss of Hester et al. (arXiv 1704.03732). Values are not driven apart beyond the margin, so that
    learning can go on from them.
    """
    others = xp.arange(q_values.shape[-1]) != actions[..., None]
    value: Array = (q_values + MARGIN * others).max(-1) - select(xp, q_values, actions)
    return value


def gaussian_nll(xp: Namespace, mean: Array, log_var: Array, targets: Array) -> Array:
    """Negative log-likelihood of a Gaussian, without its constant."""
    return 0.5 * ((targets - mean) ** 2 * xp.exp(-log_var) + log_var)


def bernoulli_nll(xp: Namespace, logits: Array, happened: Array) -> Array:
    """Negative log-likelihood of what happened (True) or did not."""
    return xp.logaddexp(0.0, xp.where(happened, -logits, logits))
