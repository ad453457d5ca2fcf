"""The environments of one actor, stepped side by side; who chooses the actions is not their affair."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from exarl.envs.episode import Episode
from exarl.envs.guard import FAILING
from exarl.types import FAILURES, Arrays, Cut, End, Row


class Bench:
    """Owns the running episodes of an actor's environments, by slot.

    ``changed`` are the episodes that the last ``state`` or ``restore`` could not go on with: their
    environments are in another one. ``restarting`` is the seconds spent on making environments anew.
    """

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self._episodes = episodes
        self._begun = False
        self.env_ids = [episode.env_id for episode in episodes]
        self.changed: list[Cut] = []
        self.restarting = 0.0

    def begin(self) -> None:
        """Start the first episodes, unless they run already."""
        if not self._begun:
            self._begun = True
            for episode in self._episodes:
                episode.begin()

    def observe(self, observations: np.ndarray) -> None:
        """Write where the environments stand into [B, ...]."""
        for i, episode in enumerate(self._episodes):
            observations[i] = episode.observation

    def step(
        self, actions: Any, row: Row, slots: Sequence[int] | None = None
    ) -> tuple[list[End], list[Cut]]:
        """Step environments (None: all of them), and begin the next episode where one has ended.

        Writes their part of ``row``, whose flags must be False before. An environment that fails is
        made anew if it has a guard, and its observation is then the first of a new episode: the
        step has still to be made.
        """
        observations, rewards, terminated, truncated = row
        ends: list[End] = []
        cuts: list[Cut] = []
        for i in range(len(self._episodes)) if slots is None else slots:
            episode = self._episodes[i]
            try:
                seen, rewards[i], over, cut = episode.step(actions[i])
            except FAILING as error:
                cuts.append(self._restart(i, error))
                observations[i] = episode.observation
                continue
            if over or cut:
                terminated[i], truncated[i] = over, cut
                ends.append(End(i, np.array(seen), episode.total_reward, episode.length))
                seen = episode.begin()
            observations[i] = seen
        return ends, cuts

    def _restart(self, slot: int, error: BaseException) -> Cut:
        started, episode = perf_counter(), self._episodes[slot]
        total_reward, length = episode.total_reward, episode.length
        episode.recover(error)
        episode.begin()
        self.restarting += perf_counter() - started
        return Cut(slot, episode.number, total_reward, length)

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
            number, total_reward, length = episode.number, episode.total_reward, episode.length
            named = episode.state()
            if episode.number != number:  # it failed when asked
                self.changed.append(Cut(slot, episode.number, total_reward, length))
            if episode.failures.any():  # of a block that was not finished
                named["failures"] = episode.failures.copy()
            if episode.restarts:
                named["restarts"] = np.array(episode.restarts)
            arrays |= {f"{episode.env_id}/{name}": array for name, array in named.items()}
        return arrays

    def restore(self, arrays: Arrays) -> None:
        """Continue the episodes that ``arrays`` knows; the other environments start afresh."""
        self._begun = True
        self.changed = []
        for slot, episode in enumerate(self._episodes):
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

    def close(self) -> None:
        for episode in self._episodes:
            episode.close()


def named_for(prefix: str, arrays: Arrays) -> Arrays:
    """What a state holds under ``prefix``, such as ``3/`` for environment 3."""
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
