"""The one rollout: B environments and a policy give blocks of T steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from exarl.agents.base import ExaAgent, Spread
from exarl.envs.episode import Episode, check_finite
from exarl.envs.guard import FAILING
from exarl.learning.exploration import Streams
from exarl.types import ACTOR_PHASES, FAILURES, Arrays, ArraySpec, Block, EnvSpec

Outcome = tuple[Any, float, bool, bool]
"""Observation, reward, terminated, truncated after a step."""


class Draft:
    """A block in the making."""

    def __init__(
        self, spec: EnvSpec, recorded: Mapping[str, ArraySpec], steps: int, width: int
    ) -> None:
        self.observations = spec.observation.zeros(steps + 1, width)
        self.actions = spec.action.zeros(steps, width)
        self.rewards = np.zeros((steps, width), np.float32)
        self.terminated = np.zeros((steps, width), bool)
        self.truncated = np.zeros((steps, width), bool)
        self.recorded = {name: array.zeros(steps, width) for name, array in recorded.items()}
        self.ends: list[list[tuple[np.ndarray, float, int]]] = [[] for _ in range(width)]
        self.restarting = 0.0  # seconds


class Rollout:
    """Owns this actor's environments and their random streams."""

    def __init__(
        self,
        agent: ExaAgent,
        episodes: Sequence[Episode],
        streams: Streams,
        block_steps: int,
        *,
        fixed_action: bool = False,
        spread: Spread | None = None,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self._agent = agent
        self._episodes = episodes
        self._streams = streams
        self._steps = block_steps
        self._begun = False
        self._spread = spread
        self._fixed = fixed_action
        self._memory = {name: spec.zeros(len(episodes)) for name, spec in agent.memory.items()}
        self._remembered = [n for n in agent.memory if f"memory/{n}" in agent.recorded]
        self._returns = np.zeros(len(episodes), np.float32)  # discounted, see return_discount
        self._moved = moved

    def collect(self, version: int, stopped: Callable[[], bool] | None = None) -> Block | None:
        """Step every environment ``block_steps`` times with the agent's present weights.

        Autoreset keeps the true last observation of an episode, and ``terminated`` apart from
        ``truncated``. An environment that fails is made anew if its episodes have a guard; without,
        EnvironmentFailure is raised when it returns NaN or infinity. When ``stopped``, asked between
        steps, says so, the block is given up and None returned.
        """
        self._begin()
        draft = Draft(self._agent.spec, self._agent.recorded, self._steps, len(self._episodes))
        for i, episode in enumerate(self._episodes):
            draft.observations[0, i] = episode.observation
        inference = 0.0
        started = perf_counter()
        for t in range(self._steps):
            if stopped is not None and stopped():
                return None
            for name in self._remembered:
                draft.recorded[f"memory/{name}"][t] = self._memory[name]
            self._moved()
            asked = perf_counter()
            chosen, extras = self._act(draft.observations[t], self._streams, self._memory)
            inference += perf_counter() - asked
            draft.actions[t] = chosen
            for name, array in extras.items():
                draft.recorded[name][t] = array
            self._step(draft, t, chosen)
        total = perf_counter() - started - draft.restarting
        seconds = np.zeros(len(ACTOR_PHASES))
        seconds[[0, 1, -1]] = total - inference, inference, draft.restarting
        return self._agent.prepare(self._finish(draft, version, seconds), self._spread)

    def _step(self, draft: Draft, t: int, chosen: Any) -> None:
        """Step every environment, and begin the next episode where one has ended."""
        # Python integers are what most environments expect, and faster than NumPy's.
        listed = chosen.tolist() if self._agent.spec.n_actions is not None else chosen
        rewards, following = draft.rewards[t], draft.observations[t + 1]
        for i, episode in enumerate(self._episodes):
            try:
                seen, rewards[i], ended, cut = episode.step(listed[i])
            except FAILING as error:
                seen, rewards[i], ended, cut = self._step_again(draft, t, i, error)
            if ended or cut:
                draft.terminated[t, i], draft.truncated[t, i] = ended, cut
                draft.ends[i].append((np.array(seen), episode.total_reward, episode.length))
                seen = episode.begin()
                for array in self._memory.values():
                    array[i] = 0
            following[i] = seen

    def _step_again(self, draft: Draft, t: int, i: int, error: BaseException) -> Outcome:
        """Step ``t`` of environment ``i`` in a new episode, in the place of the step that failed.

        The failed step leaves nothing: nobody knows where it led. The step before it becomes the
        last of its episode, truncated, with the observation it led to. Where that step is the last of
        the block before, it stays as it is: learning continues a block's end by the value of its
        last observation, exactly as that of a truncated episode.
        """
        started, episode = perf_counter(), self._episodes[i]
        own = slice(i, i + 1)
        memory = {name: array[own] for name, array in self._memory.items()}
        while True:
            last = (draft.observations[t, i].copy(), episode.total_reward, episode.length)
            episode.recover(error)
            if episode.length and t:
                draft.truncated[t - 1, i] = True
                draft.ends[i].append(last)
            elif not t:
                self._returns[i] = 0
            draft.observations[t, i] = episode.begin()
            for array in memory.values():
                array[:] = 0
            for name in self._remembered:
                draft.recorded[f"memory/{name}"][t, i] = 0
            apart = self._streams.apart(i, episode.number)
            chosen, extras = self._act(draft.observations[t, own], apart, memory)
            draft.actions[t, own] = chosen
            for name, array in extras.items():
                draft.recorded[name][t, own] = array
            action = chosen.tolist() if self._agent.spec.n_actions is not None else chosen
            draft.restarting += perf_counter() - started
            try:
                return episode.step(action[0])
            except FAILING as again:
                error, started = again, perf_counter()

    def _finish(self, draft: Draft, version: int, seconds: np.ndarray) -> Block:
        """The block of a whole draft, if all its numbers are finite."""
        if (discount := self._agent.return_discount) is not None:
            ended = draft.terminated | draft.truncated
            self._sum_up(discount, draft.rewards, ended, draft.recorded["discounted_return"])
        numbers = [episode.env_id for episode in self._episodes]
        check_finite(numbers, draft.observations, draft.rewards)
        finished = [end for environment in draft.ends for end in environment]
        finals = _stack([end[0] for end in finished], draft.observations)
        owners = [n for n, own in zip(numbers, draft.ends, strict=True) for _ in own]
        check_finite(owners, finals[None])
        failures = [[e.env_id, *e.failures.tolist()] for e in self._episodes if e.failures.any()]
        return Block(
            draft.observations,
            draft.actions,
            draft.rewards,
            draft.terminated,
            draft.truncated,
            finals,
            np.array([end[1] for end in finished], np.float64),
            np.array([end[2] for end in finished], np.int64),
            draft.recorded,
            version,
            self._take_restarts(),
            seconds,
            np.array(failures, np.int64).reshape(-1, 1 + len(FAILURES)),
        )

    def state(self) -> Arrays:
        """The running episodes and the place in the random streams, by environment number."""
        self._begin()
        arrays: Arrays = {}
        for slot, episode in enumerate(self._episodes):
            number = episode.number
            named = {**episode.state(), "stream": np.array(self._streams.position)}
            if episode.number != number:  # it failed when asked, and is in another episode now
                self._forget(slot)
            named["return"] = self._returns[slot]
            if episode.failures.any():  # of a block that was given up
                named["failures"] = episode.failures.copy()
            named |= {f"memory/{name}": array[slot].copy() for name, array in self._memory.items()}
            arrays |= {f"{episode.env_id}/{name}": array for name, array in named.items()}
        return arrays

    def restore(self, arrays: Arrays) -> None:
        """Continue the episodes that ``arrays`` knows; the other environments start afresh."""
        self._begun = True
        for slot, episode in enumerate(self._episodes):
            prefix = f"{episode.env_id}/"
            own = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
            if own:
                self._streams.seek(int(own["stream"]))
                restarts = episode.restarts
                episode.failures += own.get("failures", 0)
                episode.restore(own)
                if episode.restarts == restarts:
                    self._returns[slot] = own.get("return", 0.0)
                    for name, array in self._memory.items():
                        array[slot] = own.get(f"memory/{name}", 0)
            else:
                episode.begin()

    def _forget(self, slot: int) -> None:
        """What was summed up and remembered of an episode that is over."""
        self._returns[slot] = 0
        for array in self._memory.values():
            array[slot] = 0

    def close(self) -> None:
        for episode in self._episodes:
            episode.close()

    def _act(
        self, observations: np.ndarray, streams: Streams, memory: Arrays
    ) -> tuple[Any, Arrays]:
        if self._fixed:
            return self._agent.spec.action.zeros(len(observations)), {}
        if not memory:
            return self._agent.action(observations, streams)
        return self._agent.action(observations, streams, memory)

    def _sum_up(
        self, discount: float, rewards: np.ndarray, ended: np.ndarray, sums: np.ndarray
    ) -> None:
        """The discounted sum of each episode's rewards so far, at every step."""
        for t in range(len(rewards)):
            self._returns = np.float32(discount) * self._returns + rewards[t]
            sums[t] = self._returns
            self._returns[ended[t]] = 0

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            for episode in self._episodes:
                episode.begin()

    def _take_restarts(self) -> int:
        count = sum(episode.restarts for episode in self._episodes)
        for episode in self._episodes:
            episode.restarts = 0
            episode.failures[:] = 0
        return count


def _stack(rows: list[np.ndarray], like: np.ndarray) -> np.ndarray:
    """The rows as [K, ...], also when there are none."""
    shape = (len(rows), *like.shape[2:])
    return np.array(rows, like.dtype).reshape(shape)
