"""Distributions over actions: of [..., A] logits, or of means and log standard deviations."""

from __future__ import annotations

import math
from typing import Any

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def log_softmax(xp: Any, logits: Any) -> Any:
    """Logarithms of the probabilities [..., A]."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - xp.log(xp.exp(shifted).sum(-1, keepdims=True))


def categorical_sample(xp: Any, logits: Any, uniform: Any) -> Any:
    """Actions [B] drawn with one uniform number each."""
    weights = xp.exp(logits - logits.max(-1, keepdims=True))
    steps = weights.cumsum(-1)
    return (steps < uniform[:, None] * steps[:, -1:]).sum(-1)


def categorical_entropy(xp: Any, logits: Any) -> Any:
    """[...]"""
    log_p = log_softmax(xp, logits)
    return -(xp.exp(log_p) * log_p).sum(-1)


def gaussian_log_prob(xp: Any, actions: Any, mean: Any, log_std: Any) -> Any:
    """[...], the last axis being that of independent dimensions."""
    scaled = (actions - mean) * xp.exp(-log_std)
    return (-0.5 * scaled**2 - log_std - HALF_LOG_TWO_PI).sum(-1)


def gaussian_entropy(xp: Any, log_std: Any) -> Any:
    """[...]"""
    return (log_std + 0.5 + HALF_LOG_TWO_PI).sum(-1)


def squashed_log_prob(xp: Any, noise: Any, log_std: Any, before: Any) -> Any:
    """Of tanh(before), where ``before`` is a Gaussian's mean + std * ``noise`` (SAC, appendix C)."""
    gaussian = -0.5 * noise**2 - log_std - HALF_LOG_TWO_PI
    # log(1 - tanh(x)^2) in a form that does not round to log(0)
    return (gaussian - 2 * (math.log(2) - before - softplus(xp, -2 * before))).sum(-1)


def softplus(xp: Any, x: Any) -> Any:
    """log(1 + exp(x)) without overflow."""
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))
