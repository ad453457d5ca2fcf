"""Playing a policy greedily, without learning from it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from exarl.agents.base import ExaAgent
from exarl.envs.episode import Episode


@dataclass(frozen=True)
class Played:
    """One episode of an evaluation."""

    total_reward: float
    length: int
    terminated: bool


def play(agent: ExaAgent, episode: Episode, on_step: Callable[[Any], None] | None = None) -> Played:
    """One greedy episode; ``on_step`` sees the environment after its reset and every step."""
    episode.begin()
    spec = agent.spec
    memory = {name: array.zeros(1) for name, array in agent.memory.items()}
    terminated = truncated = False
    while not (terminated or truncated):
        if on_step is not None:
            on_step(episode.env)
        observation = np.asarray(episode.observation, spec.observation.dtype)[None]
        actions, _ = (
            agent.action(observation, None, memory) if memory else agent.action(observation)
        )
        action = actions.tolist()[0] if spec.n_actions is not None else actions[0]
        _, _, terminated, truncated = episode.step(action)
    if on_step is not None:
        on_step(episode.env)
    return Played(episode.total_reward, episode.length, terminated)


@dataclass(frozen=True)
class Evaluation:
    """How a policy did, and which."""

    steps: int
    rewards: list[float]
    lengths: list[int]
    weights: np.ndarray

    @property
    def reward_mean(self) -> float:
        return float(np.mean(self.rewards))


class Evaluator:
    """Plays the policy of a running training every ``every`` steps, in a thread and an environment of
    its own, so that neither actors nor learners wait. Every time the same episodes are played. When
    an evaluation is due while one is under way, it is left out.
    """

    def __init__(self, agent: ExaAgent, episode: Episode, every: int, episodes: int) -> None:
        self._agent = agent
        self._episode = episode
        self._every = every
        self._episodes = episodes
        self._due = every
        self._running: Future[Evaluation] | None = None
        self._given_up = False
        self._pool = ThreadPoolExecutor(1, "evaluation")

    def offer(self, steps: int, weights: Callable[[], np.ndarray]) -> None:
        """Start an evaluation of these weights if one is due and none is under way."""
        if steps < self._due or self._running is not None:
            return
        self._due = (steps // self._every + 1) * self._every
        self._running = self._pool.submit(self._evaluate, steps, weights())

    def result(self, wait: bool = False) -> Evaluation | None:
        """The evaluation that has ended since the last call; what raised in it is raised here."""
        if self._running is None or not (wait or self._running.done()):
            return None
        found, self._running = self._running.result(), None
        return found

    def close(self) -> None:
        """Give up what is under way and close the environment."""
        self._given_up = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._running is None or self._running.done():
            self._episode.close()

    def _evaluate(self, steps: int, weights: np.ndarray) -> Evaluation:
        self._agent.set_weights(weights)
        self._episode.number = -1
        played: list[Played] = []
        while len(played) < self._episodes and not self._given_up:
            played.append(play(self._agent, self._episode))
        return Evaluation(
            steps, [one.total_reward for one in played], [one.length for one in played], weights
        )
