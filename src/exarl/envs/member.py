"""The episodes of one agent among several in a simulation, which it may leave and come back to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from exarl.envs.base import Env
from exarl.envs.episode import Episode, log
from exarl.envs.guard import FAILING
from exarl.envs.joint import Joint, Member, joint_of
from exarl.envs.spaces import SpaceAdapter
from exarl.types import Arrays

Outcome = tuple[Any, float, bool, bool]
"""What ``Episode.step`` returns."""


class MemberEpisode(Episode):
    """Runs the episodes of one agent. ``number`` is that of the simulation's, in which an agent that
    comes again has another episode. While it is away its observation is void: the last it had.

    ``begin`` begins the simulation's next episode, for the first agent first. The limit on the steps of
    an episode is one on those of the simulation.
    """

    env: Env
    joint: Joint
    present = False

    def __init__(self, env: Env, adapter: SpaceAdapter, *args: Any, **options: Any) -> None:
        bare = env.unwrapped
        assert isinstance(bare, Member)
        self.joint, self._place = bare.joint, bare.place
        super().__init__(env, adapter.of(bare.place), *args, **options)

    @property
    def agent(self) -> Any:
        return self.joint.agents[self._place]

    def follow(self, action: Any) -> Outcome | None:
        """What the simulation's step has brought the agent, which chose ``action``; None if it was not
        there. If it has come, its episode begins."""
        if self.present:
            return self.step(action)
        before = self._actions
        if not self._snapshots:
            before.append(action)
        if self.joint.present[self._place]:
            self._start(self.number)
            self._actions = before
        return None

    def leave(self) -> None:
        """The agent's episode is over, and that of the simulation is not."""
        self.present = False
        self.observation = np.array(self.observation)
        self.length, self.total_reward = 0, 0.0
        self._forget_sums()

    def decoded(self, action: Any) -> Any:
        """The action as the simulation takes it."""
        return self._adapter.decode(action) if self.present else None

    def state(self) -> Arrays:
        away = {} if self.present else {"away": np.array(True)}
        return {**super().state(), **away, "moves": np.array(self.joint.steps)}

    def _start(self, number: int) -> Any:
        seen = super()._start(number)
        self.present = self.joint.present[self._place]
        return seen

    def _at_limit(self) -> bool:
        at_limit = self.joint.steps == self._limit
        self.joint.over |= at_limit
        return at_limit

    def take_over(self, state: Arrays) -> bool:
        """Go on as ``state`` says, in a simulation that is where it was; whether this agent is."""
        here = "away" not in state
        same = self.present == here and self.length == int(state["length"])
        self.total_reward = float(state["total_reward"])
        return same and np.array_equal(
            np.asarray(self.observation), state["observation"], equal_nan=True
        )

    def put_back(self, state: Arrays) -> None:
        """Be where ``state`` says, beside a simulation whose own state has been set."""
        self.present = self.joint.present[self._place] = "away" not in state
        self.length, self.observation = int(state["length"]), state["observation"]
        self._restore_sums(state)


def step_together(
    episodes: Sequence[MemberEpisode], actions: Sequence[Any]
) -> list[Outcome | None]:
    """Step a simulation with the actions of all its agents; what it has brought each of them."""
    each = list(zip(episodes, actions, strict=True))
    episodes[0].joint.act([episode.decoded(action) for episode, action in each])
    return [episode.follow(action) for episode, action in each]


def replay_together(episodes: Sequence[MemberEpisode], states: Sequence[Arrays]) -> bool:
    """Continue the episodes that ``states`` described; where this is False, the next are to begin."""
    try:
        same = _replay(episodes, states)
    except FAILING as error:
        episodes[0].recover(error)
        return False
    if not same:
        first = episodes[0]
        log.warning(
            "environment %d: episode %d could not be played again to where it was (the simulation is"
            " not deterministic, or changed); a new episode begins for all its agents",
            first.env_id,
            first.number,
        )
        first.restarts += 1
    return same


def _replay(episodes: Sequence[MemberEpisode], states: Sequence[Arrays]) -> bool:
    joint, first = episodes[0].joint, states[0]
    joint.over = True
    for episode, state in zip(episodes, states, strict=True):
        episode._start(int(state["number"]))
    kept = {n.removeprefix("env/"): a for n, a in first.items() if n.startswith("env/")}
    if joint.has_state and kept:
        joint.set_state(kept)
        joint.steps = int(first.get("moves", first["length"]))
        for episode, state in zip(episodes, states, strict=True):
            episode.put_back(state)
    else:
        for actions in zip(*(state.get("actions", ()) for state in states), strict=True):
            outcomes = step_together(episodes, actions)
            if joint.over:  # a running episode has not ended: this is another one
                return False
            for episode, outcome in zip(episodes, outcomes, strict=True):
                if outcome is not None and (outcome[2] or outcome[3]):
                    episode.leave()
    same = [e.take_over(state) for e, state in zip(episodes, states, strict=True)]  # each of them
    return all(same)


def make_episode(env: Env, adapter: SpaceAdapter, *args: Any, **options: Any) -> Episode:
    """The episodes in an environment, or of an agent of a simulation of several."""
    kind = Episode if joint_of(env) is None else MemberEpisode
    return kind(env, adapter, *args, **options)
