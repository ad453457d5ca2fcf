"""The one rollout: B environments and a policy give blocks of T steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from exarl.agents.base import ExaAgent, Spread
from exarl.envs.episode import Episode, check_finite
from exarl.learning.exploration import Streams
from exarl.types import ACTOR_PHASES, Arrays, Block


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
        ``truncated``. Raises EnvironmentFailure when an environment returns NaN or infinity. When
        ``stopped``, asked between steps, says so, the block is given up and None returned.
        """
        self._begin()
        spec, width = self._agent.spec, len(self._episodes)
        observations = spec.observation.zeros(self._steps + 1, width)
        actions = spec.action.zeros(self._steps, width)
        rewards = np.zeros((self._steps, width), np.float32)
        terminated = np.zeros((self._steps, width), bool)
        truncated = np.zeros((self._steps, width), bool)
        recorded = {n: s.zeros(self._steps, width) for n, s in self._agent.recorded.items()}
        ends: list[list[tuple[np.ndarray, float, int]]] = [[] for _ in self._episodes]
        for i, episode in enumerate(self._episodes):
            observations[0, i] = episode.observation
        inference = 0.0
        started = perf_counter()
        for t in range(self._steps):
            if stopped is not None and stopped():
                return None
            for name in self._remembered:
                recorded[f"memory/{name}"][t] = self._memory[name]
            self._moved()
            asked = perf_counter()
            chosen, extras = self._act(observations[t])
            inference += perf_counter() - asked
            actions[t] = chosen
            for name, array in extras.items():
                recorded[name][t] = array
            # Python integers are what most environments expect, and faster than NumPy's.
            listed = chosen.tolist() if spec.n_actions is not None else chosen
            following = observations[t + 1]
            for i, episode in enumerate(self._episodes):
                seen, rewards[t, i], ended, cut = episode.step(listed[i])
                if ended or cut:
                    terminated[t, i], truncated[t, i] = ended, cut
                    ends[i].append((np.array(seen), episode.total_reward, episode.length))
                    seen = episode.begin()
                    for array in self._memory.values():
                        array[i] = 0
                following[i] = seen
        total = perf_counter() - started
        if (discount := self._agent.return_discount) is not None:
            self._sum_up(discount, rewards, terminated | truncated, recorded["discounted_return"])
        check_finite([episode.env_id for episode in self._episodes], observations, rewards)
        seconds = np.zeros(len(ACTOR_PHASES))
        seconds[:2] = total - inference, inference
        finished = [end for environment in ends for end in environment]
        finals = _stack([end[0] for end in finished], observations)
        owners = [e.env_id for e, own in zip(self._episodes, ends, strict=True) for _ in own]
        check_finite(owners, finals[None])
        block = Block(
            observations,
            actions,
            rewards,
            terminated,
            truncated,
            finals,
            np.array([end[1] for end in finished], np.float64),
            np.array([end[2] for end in finished], np.int64),
            recorded,
            version,
            self._take_restarts(),
            seconds,
        )
        return self._agent.prepare(block, self._spread)

    def state(self) -> Arrays:
        """The running episodes and the place in the random streams, by environment number."""
        self._begin()
        arrays: Arrays = {}
        for slot, episode in enumerate(self._episodes):
            named = {**episode.state(), "stream": np.array(self._streams.position)}
            named["return"] = self._returns[slot]
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
                episode.restore(own)
                if episode.restarts == restarts:
                    self._returns[slot] = own.get("return", 0.0)
                    for name, array in self._memory.items():
                        array[slot] = own.get(f"memory/{name}", 0)
            else:
                episode.begin()

    def close(self) -> None:
        for episode in self._episodes:
            episode.close()

    def _act(self, observations: np.ndarray) -> tuple[Any, Arrays]:
        if self._fixed:
            return self._agent.spec.action.zeros(len(observations)), {}
        if not self._memory:
            return self._agent.action(observations, self._streams)
        return self._agent.action(observations, self._streams, self._memory)

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
        return count


def _stack(rows: list[np.ndarray], like: np.ndarray) -> np.ndarray:
    """The rows as [K, ...], also when there are none."""
    shape = (len(rows), *like.shape[2:])
    return np.array(rows, like.dtype).reshape(shape)
