"""An episode of a simulation of several agents, as an evaluation plays it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from exarl.envs.episode import Episode
from exarl.types import EpisodeInfo


class JointEpisode:
    """The episodes of all agents as one, with the methods of an ``Episode``: observations and actions
    are lists, and what it pays is the mean over the agents."""

    def __init__(self, members: Sequence[Episode]) -> None:
        self.members = members
        joint = members[0].joint
        assert joint is not None
        self.env = joint

    @property
    def number(self) -> int:
        return self.members[0].number

    @number.setter
    def number(self, number: int) -> None:
        for member in self.members:
            member.number = number

    @property
    def length(self) -> int:
        return self.members[0].length

    @property
    def total_reward(self) -> float:
        return float(np.mean([member.total_reward for member in self.members]))

    @property
    def observation(self) -> list[Any]:
        return [member.observation for member in self.members]

    @property
    def info(self) -> EpisodeInfo:
        """The logged numbers: sums and steps of all agents together, the mean of the last values."""
        names = dict.fromkeys(name for member in self.members for name in member.info)
        return {name: self._told(name) for name in names}

    def begin(self) -> list[Any]:
        return [member.begin() for member in self.members]

    def step(self, actions: Sequence[Any]) -> tuple[list[Any], float, bool, bool]:
        """As of an ``Episode``; terminated where all agents are."""
        for member, action in zip(self.members, actions, strict=True):
            member.offer(action)
        outcomes = [m.step(a) for m, a in zip(self.members, actions, strict=True)]
        seen, rewards, terminated, truncated = zip(*outcomes, strict=True)
        return list(seen), float(np.mean(rewards)), all(terminated), any(truncated)

    def recover(self, error: BaseException) -> None:
        """Raise ``error``: such a simulation is not made again."""
        self.members[0].recover(error)

    def close(self) -> None:
        for member in self.members:
            member.close()

    def _told(self, name: str) -> tuple[float, ...]:
        each = [member.info[name] for member in self.members if name in member.info]
        total, steps, last, low, high = zip(*each, strict=True)
        return sum(total), sum(steps), float(np.mean(last)), min(low), max(high)
