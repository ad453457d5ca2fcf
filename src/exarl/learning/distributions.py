"""Distributions over actions: of [..., A] logits, or of means and log standard deviations."""

from __future__ import annotations

import math

from exarl.types import Array, Namespace

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def log_softmax(xp: Namespace, logits: Array) -> Array:
    """Logarithms of the probabilities [..., A]."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - xp.log(xp.exp(shifted).sum(-1, keepdims=True))


def categorical_sample(xp: Namespace, logits: Array, uniform: Array) -> Array:
    """Actions [B] drawn with one uniform number each."""
    weights = xp.exp(logits - logits.max(-1, keepdims=True))
    steps = weights.cumsum(-1)
    return (steps < uniform[:, None] * steps[:, -1:]).sum(-1)


def categorical_entropy(xp: Namespace, logits: Array) -> Array:
    """[...]"""
    log_p = log_softmax(xp, logits)
    return -(xp.exp(log_p) * log_p).sum(-1)


def gaussian_log_prob(xp: Namespace, actions: Array, mean: Array, log_std: Array) -> Array:
    """[...]; the last axis holds independent dimensions."""
    scaled = (actions - mean) * xp.exp(-log_std)
    return (-0.5 * scaled**2 - log_std - HALF_LOG_TWO_PI).sum(-1)


def gaussian_entropy(xp: Namespace, log_std: Array) -> Array:
    """[...]"""
    return (log_std + 0.5 + HALF_LOG_TWO_PI).sum(-1)


def squashed_log_prob(xp: Namespace, noise: Array, log_std: Array, before: Array) -> Array:
    """Of tanh(before), where ``before`` is a Gaussian's mean + std * ``noise`` (SAC, appendix C)."""
    gaussian = -0.5 * noise**2 - log_std - HALF_LOG_TWO_PI
    # log(1 - tanh(x)^2) in a form that does not round to log(0)
    return (gaussian - 2 * (math.log(2) - before - softplus(xp, -2 * before))).sum(-1)


def softplus(xp: Namespace, x: Array) -> Array:
    """log(1 + exp(x)) without overflow."""
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))
