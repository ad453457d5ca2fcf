"""An episode of a simulation of several agents, as an evaluation plays it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from exarl.envs.episode import Episode
from exarl.envs.member import MemberEpisode, step_together
from exarl.types import EpisodeInfo


class JointEpisode:
    """The episodes of all agents as one, with the methods of an ``Episode``: observations and actions
    are lists, and its return is the mean over the agents that took part of all that each was paid."""

    def __init__(self, members: Sequence[Episode]) -> None:
        self.members = [member for member in members if isinstance(member, MemberEpisode)]
        self.env = self._joint = self.members[0].joint
        self._paid = [0.0] * len(self.members)  # in episodes that are over
        self._took_part = [False] * len(self.members)
        self._told: list[EpisodeInfo] = []  # of these episodes

    @property
    def number(self) -> int:
        return self.members[0].number

    @number.setter
    def number(self, number: int) -> None:
        for member in self.members:
            member.number = number

    @property
    def length(self) -> int:
        """Steps of the simulation."""
        return self._joint.steps

    @property
    def total_reward(self) -> float:
        paid = zip(self._paid, self.members, self._took_part, strict=True)
        return float(np.mean([before + m.total_reward for before, m, there in paid if there]))

    @property
    def observation(self) -> list[Any]:
        """Of each agent; void of one that is not there."""
        return [member.observation for member in self.members]

    @property
    def fresh(self) -> list[int]:
        """The places of the agents whose episodes are to begin with the next step."""
        return [place for place, member in enumerate(self.members) if not member.length]

    @property
    def info(self) -> EpisodeInfo:
        """The logged numbers: sums and steps of all agents together, the mean of the last values."""
        told = [*self._told, *(member.info for member in self.members)]
        names = dict.fromkeys(name for one in told for name in one)
        return {**{name: _joined(name, told) for name in names}, **self._by_policy()}

    def _by_policy(self) -> EpisodeInfo:
        """Of each policy, where there are several: what its agents were paid in all."""
        found: dict[str, tuple[float, ...]] = {}
        for name, places in self._joint.policies.items():
            paid = [
                self._paid[p] + self.members[p].total_reward for p in places if self._took_part[p]
            ]
            if paid:
                mean = float(np.mean(paid))
                found[f"{name}_return"] = sum(paid), len(paid), mean, min(paid), max(paid)
        return found

    def begin(self) -> list[Any]:
        self._joint.over = True
        seen = [member.begin() for member in self.members]
        self._paid, self._told = [0.0] * len(seen), []
        self._took_part = [member.present for member in self.members]
        return seen

    def step(self, actions: Sequence[Any]) -> tuple[list[Any], float, bool, bool]:
        """As of an ``Episode``; it ends when no agent is left, terminated where no episode that ended
        with this step was truncated."""
        outcomes = step_together(self.members, actions)
        made = [outcome for outcome in outcomes if outcome is not None]
        for place, (member, outcome) in enumerate(zip(self.members, outcomes, strict=True)):
            if outcome is not None and (outcome[2] or outcome[3]):
                self._paid[place] += member.total_reward
                self._told.append(member.info)
                member.leave()
            self._took_part[place] |= member.present
        over, cut = self._joint.over, any(outcome[3] for outcome in made)
        paid = float(np.mean([outcome[1] for outcome in made]))
        return self.observation, paid, over and not cut, over and cut

    def recover(self, error: BaseException) -> None:
        """Raise ``error``: such a simulation is not made again."""
        self.members[0].recover(error)

    def close(self) -> None:
        for member in self.members:
            member.close()


def _joined(name: str, told: Sequence[EpisodeInfo]) -> tuple[float, ...]:
    total, steps, last, low, high = zip(*(one[name] for one in told if name in one), strict=True)
    return sum(total), sum(steps), float(np.mean(last)), min(low), max(high)
