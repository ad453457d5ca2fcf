"""The environments of one actor, stepped one after the other with actions that the caller chooses."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from exarl.envs.episode import Episode
from exarl.envs.guard import FAILING
from exarl.envs.joint import Joint
from exarl.types import FAILURES, Arrays, Cut, End, Row


class EnvBatch:
    """Owns the running episodes of an actor's environments, by slot.

    ``changed`` are the episodes that the last ``state`` or ``restore`` could not continue: their
    environments are in another episode. ``taken`` are the slots and the actions of the last ``step``
    in which another action was taken than the one given. The agents of a ``Joint`` have slots one after
    the other, and are always stepped together.
    """

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self._episodes = episodes
        self._begun = False
        self.env_ids = [episode.env_id for episode in episodes]
        self.changed: list[Cut] = []
        self.taken: list[tuple[int, Any]] = []
        self._restarting = 0.0
        self._joints = _joints(episodes)
        self._members = [slot for slots in self._joints.values() for slot in slots]

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
        observations, rewards, terminated, truncated, costs = row
        priced = costs.size > 0
        ends: list[End] = []
        cuts: list[Cut] = []
        self.taken = []
        for i in self._members:  # before any of them is stepped
            self._episodes[i].offer(actions[i])
        for i in range(len(self._episodes)) if slots is None else slots:
            episode = self._episodes[i]
            try:
                seen, rewards[i], over, cut = episode.step(actions[i])
            except FAILING as error:
                cuts.append(self._restart(i, error))
                observations[i] = episode.observation
                continue
            if episode.taken is not None:
                self.taken.append((i, episode.taken))
            if priced:
                costs[i] = episode.costs
            if over or cut:
                terminated[i], truncated[i] = over, cut
                final, info = np.array(seen), episode.info
                ends.append(End(i, final, episode.total_reward, episode.length, info))
                seen = episode.begin()
            observations[i] = seen
        return ends, cuts

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
        for joint, slots in self._joints.items():
            self._restore_together(joint, slots, arrays)
        for slot, episode in enumerate(self._episodes):
            own = named_for(f"{episode.env_id}/", arrays)
            if slot in self._members:
                continue
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

    def _restore_together(self, joint: Joint, slots: Sequence[int], arrays: Arrays) -> None:
        """Continue the episodes of a joint simulation: all of them, or all begin the next."""
        episodes = [self._episodes[slot] for slot in slots]
        kept = [named_for(f"{episode.env_id}/", arrays) for episode in episodes]
        if all(kept):
            for episode, own in zip(episodes, kept, strict=True):
                episode.restarts += int(own.get("restarts", 0))
                for action in own.get("actions", ()):
                    episode.offer(action)
            same = [episode.replay(own) for episode, own in zip(episodes, kept, strict=True)]
            if all(same):
                return
        joint.forget()
        for slot, episode, own in zip(slots, episodes, kept, strict=True):
            episode.begin()
            if own:
                total_reward, length = float(own["total_reward"]), int(own["length"])
                self.changed.append(Cut(slot, episode.number, total_reward, length))

    def close(self) -> None:
        for episode in self._episodes:
            episode.close()


def _joints(episodes: Sequence[Episode]) -> dict[Joint, list[int]]:
    """The slots of each joint simulation."""
    found: dict[Joint, list[int]] = {}
    for slot, episode in enumerate(episodes):
        if episode.joint is not None:
            found.setdefault(episode.joint, []).append(slot)
    return found


def named_for(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays whose names begin with ``prefix``, without it; ``3/`` selects environment 3."""
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
