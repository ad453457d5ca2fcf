"""The environments of one actor, stepped one after the other with actions that the caller chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from exarl.envs.episode import Episode
from exarl.envs.guard import FAILING
from exarl.envs.joint import Joint
from exarl.envs.member import MemberEpisode, replay_together, step_together
from exarl.errors import EnvironmentFailure
from exarl.types import FAILURES, Arrays, Cut, End, Row

CHANGES = (
    "begins or ends an episode while others are in one: train with --agents_change true where agents"
    " come and go"
)


class EnvBatch:
    """Owns the running episodes of an actor's environments, by slot.

    ``changed`` are the episodes that the last ``state`` or ``restore`` could not continue: their
    environments are in another episode. ``taken`` are the slots and the actions of the last ``step``
    in which another action was taken than the one given. The agents of a ``Joint`` have slots one after
    the other, and are always stepped together; which of them were not there is in the row, where it has
    a place for that.
    """

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self._episodes = episodes
        self._begun = False
        self.env_ids = [episode.env_id for episode in episodes]
        self.changed: list[Cut] = []
        self.taken: list[tuple[int, Any]] = []
        self._restarting = 0.0
        self._joints = _joints(episodes)
        self._alone = [i for i, e in enumerate(episodes) if not isinstance(e, MemberEpisode)]

    def begin(self) -> None:
        """Start the first episodes, unless they have begun."""
        if not self._begun:
            self._begun = True
            for episode in self._episodes:
                episode.begin()

    def observe(self, observations: np.ndarray) -> None:
        """Write the present observations into [B, ...]."""
        for i, episode in enumerate(self._episodes):
            observations[i] = episode.observation

    def step(
        self, actions: np.ndarray | Sequence[int], row: Row, slots: Sequence[int] | None = None
    ) -> tuple[list[End], list[Cut]]:
        """Step environments (None: all of them), and begin the next episode where one has ended.

        Writes their part of ``row``, whose flags must be False before. An environment that fails and
        has a guard is replaced by a new one. Its observation is then the first of a new episode, and
        its step has still to be made.
        """
        ends: list[End] = []
        cuts: list[Cut] = []
        self.taken = []
        for joint, members in self._joints.items() if slots is None else ():
            self._step_together(joint, members, actions, row, ends)
        for i in self._alone if slots is None else slots:
            episode = self._episodes[i]
            try:
                outcome = episode.step(actions[i])
            except FAILING as error:
                cuts.append(self._restart(i, error))
                row.observations[i] = episode.observation
                continue
            seen = outcome[0]
            if self._write(row, i, outcome, ends):
                seen = episode.begin()
            row.observations[i] = seen
        return ends, cuts

    def _write(
        self, row: Row, slot: int, outcome: tuple[Any, float, bool, bool], ends: list[End]
    ) -> bool:
        """Write what a step gave, but for the observation; whether it was the last of its episode."""
        episode = self._episodes[slot]
        seen, row.rewards[slot], over, cut = outcome
        if episode.taken is not None:
            self.taken.append((slot, episode.taken))
        if row.costs.size > 0:
            row.costs[slot] = episode.costs
        if not (over or cut):
            return False
        row.terminated[slot], row.truncated[slot] = over, cut
        final, info = np.array(seen), episode.info
        ends.append(End(slot, final, episode.total_reward, episode.length, info))
        return True

    def _step_together(
        self,
        joint: Joint,
        members: Mapping[int, MemberEpisode],
        actions: np.ndarray | Sequence[int],
        row: Row,
        ends: list[End],
    ) -> None:
        """Step a simulation of several agents."""
        episodes = list(members.values())
        before = [episode.present for episode in episodes]
        if not row.absent.size and not all(before):
            agent = episodes[before.index(False)].agent
            raise EnvironmentFailure(f"agent {agent} {CHANGES}", "shape")
        try:
            outcomes = step_together(episodes, [actions[slot] for slot in members])
        except FAILING as error:
            episodes[0].recover(error)  # which raises: such a simulation is not made again
            raise
        for (slot, episode), outcome in zip(members.items(), outcomes, strict=True):
            if outcome is not None and self._write(row, slot, outcome, ends):
                episode.leave()
        if joint.over:
            for episode in episodes:
                episode.begin()
        for (slot, episode), here in zip(members.items(), before, strict=True):
            row.observations[slot] = episode.observation
            if row.absent.size > 0:
                row.absent[slot] = not here

    def _restart(self, slot: int, error: BaseException) -> Cut:
        started, episode = perf_counter(), self._episodes[slot]
        lost = episode.total_reward, episode.length, episode.info
        episode.recover(error)
        episode.begin()
        self._restarting += perf_counter() - started
        return Cut(slot, episode.number, *lost)

    def take_restarting(self) -> float:
        """Seconds spent since the last call on new environments in place of failed ones."""
        seconds, self._restarting = self._restarting, 0.0
        return seconds

    def take_failures(self) -> tuple[int, np.ndarray]:
        """Restarts, and failures by environment [F, 1 + kinds], since the last call."""
        failed = [e for e in self._episodes if e.failures.any()]
        rows = [[episode.env_id, *episode.failures.tolist()] for episode in failed]
        restarts = sum(episode.restarts for episode in self._episodes)
        for episode in self._episodes:
            episode.restarts = 0
        for episode in failed:
            episode.failures[:] = 0
        return restarts, np.array(rows, np.int64).reshape(-1, 1 + len(FAILURES))

    def state(self) -> Arrays:
        """The running episodes, named by environment number."""
        self.begin()
        self.changed = []
        arrays: Arrays = {}
        for slot, episode in enumerate(self._episodes):
            number, lost = episode.number, (episode.total_reward, episode.length, episode.info)
            named = episode.state()
            if episode.number != number:  # it failed in ``state``
                self.changed.append(Cut(slot, episode.number, *lost))
            if episode.failures.any():  # of a block that was not finished
                named["failures"] = episode.failures.copy()
            if episode.restarts:
                named["restarts"] = np.array(episode.restarts)
            arrays |= {f"{episode.env_id}/{name}": array for name, array in named.items()}
        return arrays

    def restore(self, arrays: Arrays) -> None:
        """Continue the episodes in ``arrays``; the other environments start their first episode."""
        self._begun = True
        self.changed = []
        for members in self._joints.values():
            self._restore_together(members, arrays)
        for slot in self._alone:
            episode = self._episodes[slot]
            own = named_for(f"{episode.env_id}/", arrays)
            if not own:
                episode.begin()
                continue
            episode.failures += own.get("failures", 0)
            episode.restarts += int(own.get("restarts", 0))
            restarts = episode.restarts
            episode.restore(own)
            if episode.restarts != restarts:
                total_reward, length = float(own["total_reward"]), int(own["length"])
                self.changed.append(Cut(slot, episode.number, total_reward, length))

    def _restore_together(self, members: Mapping[int, MemberEpisode], arrays: Arrays) -> None:
        """Continue the episodes of a joint simulation: all of them, or all begin the next."""
        episodes = list(members.values())
        kept = [named_for(f"{episode.env_id}/", arrays) for episode in episodes]
        if all(kept):
            for episode, own in zip(episodes, kept, strict=True):
                episode.restarts += int(own.get("restarts", 0))
            if replay_together(episodes, kept):
                return
        episodes[0].joint.over = True
        for slot, own in zip(members, kept, strict=True):
            self._episodes[slot].begin()
            if own:
                total_reward, length = float(own["total_reward"]), int(own["length"])
                number = self._episodes[slot].number
                self.changed.append(Cut(slot, number, total_reward, length))

    def close(self) -> None:
        for episode in self._episodes:
            episode.close()


def _joints(episodes: Sequence[Episode]) -> dict[Joint, dict[int, MemberEpisode]]:
    """The episodes of each joint simulation, by slot."""
    found: dict[Joint, dict[int, MemberEpisode]] = {}
    for slot, episode in enumerate(episodes):
        if isinstance(episode, MemberEpisode):
            found.setdefault(episode.joint, {})[slot] = episode
    return found


def named_for(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays whose names begin with ``prefix``, without it; ``3/`` selects environment 3."""
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
