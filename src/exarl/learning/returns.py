"""Returns over blocks of experience, arrays shaped [T, B]."""

from __future__ import annotations

from exarl.types import Array, Namespace


def n_step_returns(
    xp: Namespace,
    rewards: Array,
    terminated: Array,
    truncated: Array,
    gamma: float | Array,
    n: int,
    starts: int | None = None,
) -> tuple[Array, Array, Array]:
    """Discounted rewards of up to ``n`` steps, the discount of what follows, and the last step, each
    [starts, B]: for windows that start at the first steps of the arrays (None: at all of them).

    The window of step t ends after n steps, at the end of its episode or at the end of the arrays,
    whichever comes first. ``last[t]`` is its last step, whose next observation bootstraps the value:
    ``target = returns + discounts * value(next_observation[last])``. A terminated window has
    discount 0, a truncated one does not.
    """
    ended = terminated | truncated
    first = rewards if starts is None else rewards[:starts]
    step = xp.arange(len(first))[:, None]
    returns = xp.zeros_like(first)
    if n == 1:  # the same numbers, in a quarter of the time
        discounts = xp.where(terminated[: len(first)], 0, gamma).astype(rewards.dtype)
        return returns + first, discounts, step + xp.zeros(first.shape, int)
    discounts = xp.ones_like(first)
    last = step + xp.zeros(first.shape, int)
    alive = xp.ones(first.shape, bool)
    for k in range(min(n, len(rewards))):
        ahead = xp.minimum(step + k, len(rewards) - 1)[:, 0]
        alive = alive & (step + k < len(rewards))
        returns = returns + xp.where(alive, gamma**k * rewards[ahead], 0).astype(rewards.dtype)
        discounts = xp.where(alive, gamma ** (k + 1), discounts).astype(rewards.dtype)
        last = xp.where(alive, step + k, last)
        alive = alive & ~ended[ahead]
    finished = xp.take_along_axis(terminated, last, axis=0)
    return returns, xp.where(finished, 0, discounts).astype(rewards.dtype), last


def window_rewards(xp: Namespace, rewards: Array, last: Array, n: int) -> Array:
    """The rewards of each window [starts, B, n], zero after its ``last`` step [starts, B]."""
    step = xp.arange(len(last))[:, None] + xp.arange(n)  # [starts, n]
    ahead = rewards[xp.minimum(step, len(rewards) - 1)].swapaxes(1, 2)
    return xp.where(step[:, None] <= last[..., None], ahead, 0).astype(rewards.dtype)


def backward_sum(xp: Namespace, values: Array, factors: Array) -> Array:
    """``sums[t] = values[t] + factors[t] * sums[t + 1]``, zero beyond the end, for [T, ...].

    By doubling: after k rounds each sum reaches 2^k steps ahead, so a few whole-array operations
    replace a loop over time.
    """
    length, reach = len(values), 1
    while reach < length:
        ahead = xp.zeros_like(values[:reach])
        values = values + factors * xp.concatenate([values[reach:], ahead])
        factors = factors * xp.concatenate([factors[reach:], ahead])
        reach *= 2
    return values


def vtrace(
    xp: Namespace,
    v_tm1: Array,
    v_t: Array,
    r_t: Array,
    discount_t: Array,
    ended: Array,
    rho: Array,
    lambda_: float | Array = 1.0,
    clip_rho: float | Array = 1.0,
    clip_c: float | Array = 1.0,
) -> tuple[Array, Array]:
    """Value targets and policy-gradient advantages [T, B] (Espeholt et al. 2018, arXiv 1802.01561).

    ``v_t`` is the value of where a step truly led, ``discount_t`` is 0 where it terminated, ``ended``
    whether the next row belongs to another episode, ``rho`` the ratio of the learner's to the actor's
    probability of the action. With ``rho`` = 1 the advantages are those of GAE(lambda).
    """
    clipped = xp.minimum(rho, clip_rho)
    going_on = discount_t * (1 - ended)
    surprise = clipped * (r_t + discount_t * v_t - v_tm1)
    correction = backward_sum(xp, surprise, going_on * lambda_ * xp.minimum(rho, clip_c))
    ahead = xp.concatenate([correction[1:], xp.zeros_like(correction[:1])])
    q_tm1 = r_t + discount_t * v_t + going_on * lambda_ * ahead
    return v_tm1 + correction, clipped * (q_tm1 - v_tm1)


def q_lambda(
    xp: Namespace,
    v_t: Array,
    r_t: Array,
    discount_t: Array,
    ended: Array,
    lambda_: float | Array,
) -> Array:
    """Targets [T, B] of action values: returns that at each step are, by ``1 - lambda_``, cut off at
    ``v_t``, the value of the best action where the step truly led (Peng's Q(lambda), as in Daley and
    Amato 2019, arXiv 1810.09967).

    ``discount_t`` is 0 where the step terminated, ``ended`` whether the next row belongs to another
    episode; the last row is cut off, too.
    """
    last = xp.arange(len(r_t))[:, None] == len(r_t) - 1
    passed_on = discount_t * lambda_ * xp.where(last, 0.0, 1 - ended)
    # r + discount * ((1 - lambda) * v + lambda * next target), where the next one is passed on
    return backward_sum(xp, r_t + (discount_t - passed_on) * v_t, passed_on)
