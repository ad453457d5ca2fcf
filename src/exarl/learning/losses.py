"""Losses and their targets, for batches [N] and action values [N, A]."""

from __future__ import annotations

from typing import Any


def select(xp: Any, values: Any, actions: Any) -> Any:
    """``values[i, actions[i]]`` -> [N], as a masked sum, whose gradient needs no scatter."""
    chosen = xp.arange(values.shape[-1]) == actions[..., None]  # [N, A]
    return xp.where(chosen, values, 0).sum(-1)


def q_targets(xp: Any, r_t: Any, discount_t: Any, q_t_value: Any, q_t_selector: Any) -> Any:
    """Bellman targets [N]: the value net rates the action that the selector net likes best.

    With one net for both this is Q-learning (Mnih et al. 2015); with the online net selecting and
    the target net rating it is double Q-learning (van Hasselt et al. 2016, arXiv 1509.06461).
    """
    best = q_t_selector.argmax(-1)
    return r_t + discount_t * select(xp, q_t_value, best)


def dueling(xp: Any, outputs: Any) -> Any:
    """Action values [N, A] from a value and A advantages [N, 1 + A] (arXiv 1511.06581)."""
    value, advantages = outputs[..., :1], outputs[..., 1:]
    return value + advantages - advantages.mean(-1, keepdims=True)


def huber(xp: Any, errors: Any, delta: float = 1.0) -> Any:
    """Quadratic up to ``delta``, linear beyond."""
    size = xp.abs(errors)
    inside = xp.minimum(size, delta)
    return 0.5 * inside**2 + delta * (size - inside)


def squared(xp: Any, errors: Any) -> Any:
    """Half the square."""
    return 0.5 * errors**2
