"""Playing a policy without learning from it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from exarl.acting.joint_episode import JointEpisode
from exarl.agents.base import ExaAgent
from exarl.envs.episode import Episode
from exarl.envs.guard import FAILING
from exarl.types import Arrays, EpisodeInfo


@dataclass(frozen=True)
class Played:
    """One episode of an evaluation."""

    total_reward: float
    length: int
    terminated: bool
    failed: bool = False  # it ends with the last good step before the environment failed
    info: EpisodeInfo = field(default_factory=dict)  # with log_info

    @property
    def ended_by(self) -> str:
        """``termination``, ``truncation`` or ``failure``."""
        return "failure" if self.failed else "termination" if self.terminated else "truncation"


class Move(NamedTuple):
    """One step as the environment saw it; its first has the observation of the reset before it."""

    before: Any
    action: Any
    reward: float
    terminated: bool
    truncated: bool
    after: Any


Choose = Callable[[Episode | JointEpisode], Any]
"""The next action for a running episode, in the form that its ``step`` takes."""

OnStep = Callable[[Episode | JointEpisode], None]
"""Sees a running episode."""


def greedy(agent: ExaAgent) -> Choose:
    """The agent's actions without exploration; its memory is empty when an episode begins."""
    spec = agent.spec
    memory: Arrays = {}

    def choose(episode: Episode | JointEpisode) -> Any:
        several = isinstance(episode, JointEpisode)
        if not episode.length:
            agent.begin_episode(episode.number)
            rows = len(episode.observation) if several else 1
            memory.update({name: array.zeros(rows) for name, array in agent.memory.items()})
        if isinstance(episode, JointEpisode):
            for array in memory.values():
                array[episode.fresh] = 0
        seen = np.asarray(episode.observation, spec.observation.dtype)
        observations = seen if several else seen[None]
        actions, _ = (
            agent.action(observations, None, memory) if memory else agent.action(observations)
        )
        chosen = actions.tolist() if spec.n_actions is not None else actions
        return chosen if several else chosen[0]

    return choose


def play(
    choose: Choose,
    episode: Episode | JointEpisode,
    on_step: OnStep | None = None,
    on_move: Callable[[Move], None] | None = None,
) -> Played:
    """Play one episode; ``on_step`` is called with it after reset and after each step, and ``on_move``
    with each step."""
    episode.begin()
    terminated = truncated = False
    while not (terminated or truncated):
        if on_step is not None:
            on_step(episode)
        before = copy.deepcopy(episode.raw) if isinstance(episode, Episode) and on_move else None
        action = choose(episode)
        try:
            _, reward, terminated, truncated = episode.step(action)
        except FAILING as error:
            told = episode.info
            episode.recover(error)
            return Played(episode.total_reward, episode.length, False, failed=True, info=told)
        if on_move is not None and isinstance(episode, Episode):
            taken = action if episode.taken is None else episode.taken
            paid = float(reward)  # type: ignore[arg-type]
            ends = bool(terminated), bool(truncated)
            on_move(Move(before, taken, paid, *ends, copy.deepcopy(episode.raw)))
    if on_step is not None:
        on_step(episode)
    return Played(episode.total_reward, episode.length, terminated, info=episode.info)


@dataclass(frozen=True)
class Evaluation:
    """The results of a policy, and its weights."""

    steps: int
    rewards: list[float]
    lengths: list[int]
    weights: np.ndarray
    info: Sequence[EpisodeInfo] = ()  # of each episode, with log_info

    @property
    def by_episode(self) -> tuple[list[float], list[int], Sequence[EpisodeInfo]]:
        """Rewards, lengths and numbers of info."""
        return self.rewards, self.lengths, self.info

    @property
    def reward_mean(self) -> float:
        return float(np.mean(self.rewards))


class GivenUp(Exception):
    """The run is over and the evaluation is not needed any more."""


class Evaluator:
    """Evaluates the policy every ``every`` steps of training, in a thread and an environment of its
    own, so that neither actors nor learners wait. Each evaluation plays the same episodes. One that is
    due while another is running is left out.
    """

    def __init__(
        self, agent: ExaAgent, episode: Episode | JointEpisode, every: int, episodes: int
    ) -> None:
        self._agent = agent
        self._episode = episode
        self._every = every
        self._episodes = episodes
        self._due = every
        self._thread: threading.Thread | None = None
        self._result: Evaluation | BaseException | None = None
        self._over = False

    @property
    def running(self) -> bool:
        """Whether an evaluation has not ended."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        """Wait for the end of a running evaluation, at most so long."""
        if self._thread is not None:
            self._thread.join(seconds)

    def offer(
        self, steps: int, weights: Callable[[], np.ndarray], *, at_once: bool = False
    ) -> None:
        """Start an evaluation of these weights if one is due (or ``at_once``) and none is running."""
        if (steps < self._due and not at_once) or self._thread is not None:
            return
        self._due = (steps // self._every + 1) * self._every
        # A daemon thread: the program's end does not wait for a step that takes hours.
        self._thread = threading.Thread(
            target=self._evaluate, args=(steps, weights()), name="evaluation", daemon=True
        )
        self._thread.start()

    def result(self, wait: bool = False) -> Evaluation | None:
        """The evaluation that has ended since the last call, if one has. Raises what it raised."""
        if self._thread is None or (self.running and not wait):
            return None
        self._thread.join()
        self._thread = None
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result

    def close(self) -> None:
        """Stop a running evaluation after its present step, and close the environment."""
        self._over = True
        if not self.running:
            self._episode.close()

    def _evaluate(self, steps: int, weights: np.ndarray) -> None:
        try:
            self._agent.set_weights(weights)
            self._episode.number = -1
            choose = greedy(self._agent)
            played = [play(choose, self._episode, self._go_on) for _ in range(self._episodes)]
            rewards, lengths = [p.total_reward for p in played], [p.length for p in played]
            told = [p.info for p in played]
            self._result = Evaluation(steps, rewards, lengths, weights, told)
        except BaseException as error:  # noqa: BLE001 - raised again where the result is taken
            self._result = error

    def _go_on(self, _: Episode | JointEpisode) -> None:
        if self._over:
            raise GivenUp
