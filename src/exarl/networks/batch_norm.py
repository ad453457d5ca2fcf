"""Normalisation by the statistics of a batch where a network learns, by running moments where it acts.

Batch normalisation: Ioffe and Szegedy 2015 (arXiv 1502.03167). Batch renormalisation: Ioffe 2017
(arXiv 1702.03275). Parameters of place ``i`` of a network: ``batch_norm/{i}/scale`` and
``batch_norm/{i}/offset``, which are trained, and ``running/{i}/mean`` and ``running/{i}/var``, which
follow the batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exarl.networks.network import RUNNING
from exarl.types import Array, Arrays, Namespace, Params

EPSILON = 1e-3
"""What is added to a variance."""
RATE = 0.01
"""How far the running moments go towards those of a batch."""
LARGEST_SCALE, LARGEST_SHIFT = 3.0, 5.0
"""How far renormalisation follows the running moments: the ratio of the deviations, and the distance
of the means in deviations."""


def first(sizes: Sequence[int]) -> Arrays:
    """The parameters of all places, given their numbers of features."""
    params: Arrays = {}
    for place, size in enumerate(sizes):
        params[f"batch_norm/{place}/scale"] = np.ones(size, np.float32)
        params[f"batch_norm/{place}/offset"] = np.zeros(size, np.float32)
        params[f"{RUNNING}{place}/mean"] = np.zeros(size, np.float32)
        params[f"{RUNNING}{place}/var"] = np.ones(size, np.float32)
    return params


def as_affine(xp: Namespace, params: Params, place: int) -> tuple[Array, Array]:
    """Factor and offset [features] of what a place does by its running moments."""
    factor = params[f"batch_norm/{place}/scale"] / xp.sqrt(
        params[f"{RUNNING}{place}/var"] + EPSILON
    )
    return factor, params[f"batch_norm/{place}/offset"] - factor * params[f"{RUNNING}{place}/mean"]


def by_running(xp: Namespace, params: Params, place: int, x: Array) -> Array:
    """[N, features], normalised by the running moments."""
    factor, offset = as_affine(xp, params, place)
    return (x * factor + offset).astype(x.dtype)


def by_batch(
    xp: Namespace, params: Params, place: int, x: Array, renormalise: bool | Array
) -> tuple[Array, dict[str, Array]]:
    """[N, features], normalised by the batch's own moments, and the running ones after it.

    With ``renormalise`` the result is, within limits, what the running moments would give, while
    gradients still see the batch's. Statistics are those of float32 also where ``x`` is narrower.
    """
    wide = x.astype(np.float32)
    mean = wide.mean(0)
    centred = wide - mean
    var = (centred * centred).mean(0)
    std = xp.sqrt(var + EPSILON)
    names = f"{RUNNING}{place}/mean", f"{RUNNING}{place}/var"
    running_mean, running_var = (params[name] for name in names)
    running_std = xp.sqrt(running_var + EPSILON)
    ratio = xp.clip(std / running_std, 1 / LARGEST_SCALE, LARGEST_SCALE)
    shift = xp.clip((mean - running_mean) / running_std, -LARGEST_SHIFT, LARGEST_SHIFT)
    ratio = _constant(xp, xp.where(renormalise, ratio, 1.0))
    shift = _constant(xp, xp.where(renormalise, shift, 0.0))
    scaled = centred / std * ratio + shift
    made = scaled * params[f"batch_norm/{place}/scale"] + params[f"batch_norm/{place}/offset"]
    after = (
        _constant(xp, running_mean + RATE * (mean - running_mean)),
        _constant(xp, running_var + RATE * (var - running_var)),
    )
    return made.astype(x.dtype), dict(zip(names, after, strict=True))


def _constant(xp: Namespace, x: Array) -> Array:
    """``x``, through which no gradient flows."""
    if xp is np:
        return x
    from jax.lax import stop_gradient

    return stop_gradient(x)
