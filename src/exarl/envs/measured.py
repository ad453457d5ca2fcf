"""What random play in an environment shows of its speed, its episodes and the size of its rewards."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from exarl.envs.joint import members_of
from exarl.envs.watched import Watched

DISCOUNT = 0.99
"""Of the rewards in ``Measured.value``, as of most agents."""


@dataclass(frozen=True)
class Measured:
    """``reward`` is the size (root mean square) of rewards, ``value`` the largest discounted sum of
    rewards from any step on: with rare rewards, most of them say nothing. ``episode`` is the mean
    length of the episodes that have ended, None where none has; ``continuous`` says that actions are
    a Box. ``agents`` make each step together."""

    steps: int
    step_s: float
    slowest_s: float
    reset_s: float
    slowest_reset_s: float
    reward: float
    value: float
    episode: float | None
    continuous: bool
    agents: int = 1

    def __str__(self) -> str:
        text = f"{self.step_s * 1e6:,.0f} us per step (the slowest {self.slowest_s * 1e3:,.2f} ms)"
        text += f", {self.reset_s * 1e3:,.2f} ms per reset"
        if self.episode is not None:
            text += f"; episodes of {self.episode:,.0f} steps"
        return f"{text}; rewards of {self.reward:.2g}, summed up to {self.value:.2g}"


def measure(env: Watched, count: int, seconds: float = 2.0) -> Measured:
    """Play at random: ``count`` steps, or as many as are made in ``seconds``."""
    members = members_of(env)
    env.action_space.seed(0)
    env.reset(seed=6)
    times, rewards, lasts, resets = list[float](), list[float](), list[bool](), [env.seconds]
    started = time.perf_counter()
    while len(times) < count and (not times or time.perf_counter() - started < seconds):
        _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        times.append(env.seconds)
        rewards.append(reward)
        lasts.append(terminated or truncated)
        if lasts[-1]:
            env.reset()
            resets.append(env.seconds)
    ends = np.flatnonzero(lasts)
    return Measured(
        len(times),
        float(np.mean(times)),
        max(times),
        float(np.mean(resets)),
        max(resets),
        float(np.sqrt(np.mean(np.square(rewards)))),
        float(np.abs(_sums(rewards, lasts)).max()),
        float(np.mean(np.diff(ends, prepend=-1))) if len(ends) else None,
        isinstance(members[0].action_space, spaces.Box),
        len(members),
    )


def _sums(rewards: list[float], lasts: list[bool]) -> np.ndarray:
    """The discounted sum of the rewards from each step to the end of its episode."""
    sums, following = np.zeros(len(rewards)), 0.0
    for step in range(len(rewards) - 1, -1, -1):
        following = rewards[step] + (0.0 if lasts[step] else DISCOUNT * following)
        sums[step] = following
    return sums
