"""Distributions over actions: of [..., A] logits, or of means and log standard deviations."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from exarl.types import Array, Namespace

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)

FORBIDDEN = -1e9
"""The logit, and the value, of an action that is not allowed: finite, so that gradients are."""

_TINY = 1e-37  # as a float32 too
_FEW = 4
"""Rows that are drawn for one by one, which then takes less than arrays of all."""


def log_softmax(xp: Namespace, logits: Array) -> Array:
    """Logarithms of the probabilities [..., A]."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - xp.log(xp.exp(shifted).sum(-1, keepdims=True))


def categorical_sample(xp: Namespace, logits: Array, uniform: Array) -> Array:
    """Actions [...] drawn with one uniform number each."""
    weights = xp.exp(logits - logits.max(-1, keepdims=True))
    steps = weights.cumsum(-1)
    return (steps < uniform[..., None] * steps[..., -1:]).sum(-1)


def among(xp: Namespace, logits: Array, allowed: Array | None, choices: tuple[int, ...]) -> Array:
    """Logits or values [..., A] with those of other actions than ``allowed`` at ``FORBIDDEN``; where
    there are factors, [..., factors, choices], in which places beyond a factor's choices are, too."""
    if allowed is not None:
        logits = xp.where(allowed, logits, FORBIDDEN)
    if not choices:
        return logits
    if len(set(choices)) == 1:
        return logits.reshape(*logits.shape[:-1], len(choices), choices[0])
    places, there = _places(choices)
    return xp.where(there, logits[..., places], FORBIDDEN)


@cache
def _places(choices: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Where the choices of each factor stand among all, [factors, most]; and which there are."""
    counts, column = np.array(choices)[:, None], np.arange(max(choices))
    first = np.cumsum([0, *choices[:-1]])[:, None]
    return first + np.minimum(column, counts - 1), column < counts


def is_allowed(logits: Array) -> Array:
    """Which of what ``among`` gave is allowed."""
    return logits > 0.5 * FORBIDDEN


def sample_among(xp: Namespace, logits: Array, uniform: Array) -> Array:
    """Like ``categorical_sample`` of what ``among`` gave: never one that is forbidden."""
    # A uniform number of exactly 0 would be below the weight of no action, and so choose the first.
    drawn = categorical_sample(xp, logits, xp.maximum(uniform, _TINY))
    if xp is np:
        return drawn
    # A device may sum in another order and round: a weight of 0 need not leave the sum as it is.
    right = xp.take_along_axis(is_allowed(logits), drawn[..., None], -1)[..., 0]
    return xp.where(right, drawn, logits.argmax(-1))


def uniform_among(xp: Namespace, allowed: Array, uniform: Array) -> Array:
    """Actions [...], all that are allowed [..., A] equally likely, drawn with a uniform number each."""
    if isinstance(allowed, np.ndarray) and allowed.ndim == 2 and len(allowed) <= _FEW:
        pairs = zip(allowed, uniform.tolist(), strict=True)
        return np.array([_one_among(*pair) for pair in pairs])
    counts = allowed.cumsum(-1)  # whole numbers, exact on every device
    number = xp.minimum(uniform[..., None] * counts[..., -1:], counts[..., -1:] - 0.5)
    return (counts <= number).sum(-1)


def _one_among(allowed: np.ndarray, uniform: float) -> int:
    """``uniform_among`` of one row [A]."""
    places = allowed.nonzero()[0]
    return int(places[int(min(uniform * len(places), len(places) - 0.5))])


def categorical_entropy(xp: Namespace, logits: Array) -> Array:
    """[...]"""
    log_p = log_softmax(xp, logits)
    return -(xp.exp(log_p) * log_p).sum(-1)


def categorical_projection(
    xp: Namespace, places: Array, probabilities: Array, support: Array
) -> Array:
    """Probabilities [N, L] on the evenly spaced ``support`` [L] of a mass of ``probabilities`` [N, K]
    at ``places`` [N, K]: each is shared by its two neighbours so that its mean stays, and what lies
    beyond the ends is taken to lie there (Bellemare et al. 2017, arXiv 1707.06887)."""
    inside = xp.clip(places, support[0], support[-1])[:, None, :]  # [N, 1, K]
    distances = xp.abs(inside - support[:, None]) / (support[1] - support[0])  # [N, L, K]
    projected: Array = xp.einsum("nlk,nk->nl", xp.maximum(1 - distances, 0), probabilities)
    return projected


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
