"""Returns over blocks of experience, arrays shaped [T, B]."""

from __future__ import annotations

from typing import Any


def n_step_returns(
    xp: Any, rewards: Any, terminated: Any, truncated: Any, gamma: float, n: int
) -> tuple[Any, Any, Any]:
    """Discounted rewards of up to ``n`` steps, the discount of what follows, and the last step.

    The window of step t ends after n steps, at the end of its episode or at the end of the block,
    whichever comes first; ``last[t]`` is its last step, whose next observation bootstraps the value:
    ``target = returns + discounts * value(next_observation[last])``. A terminated window has
    discount 0, a truncated one does not.
    """
    ended = terminated | truncated
    step = xp.arange(len(rewards))[:, None]  # [T, 1]
    returns = xp.zeros_like(rewards)
    discounts = xp.ones_like(rewards)
    last = step + xp.zeros(rewards.shape, int)
    alive = xp.ones(rewards.shape, bool)
    for k in range(min(n, len(rewards))):
        ahead = xp.minimum(step + k, len(rewards) - 1)[:, 0]
        alive = alive & (step + k < len(rewards))
        returns = returns + xp.where(alive, gamma**k * rewards[ahead], 0).astype(rewards.dtype)
        discounts = xp.where(alive, gamma ** (k + 1), discounts).astype(rewards.dtype)
        last = xp.where(alive, step + k, last)
        alive = alive & ~ended[ahead]
    finished = xp.take_along_axis(terminated, last, axis=0)
    return returns, xp.where(finished, 0, discounts).astype(rewards.dtype), last
