"""Simulations of several agents, which have PettingZoo's parallel interface.

A ``Joint`` has one agent's environment for each agent, its ``members``: the code that steps
environments offers every member its action first, and the first member that is stepped moves the
simulation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from typing import Any, TypeGuard

import numpy as np
from gymnasium import spaces

from exarl.envs.base import Env, ExaEnv, Info, Space
from exarl.errors import ConfigError, EnvironmentFailure
from exarl.types import Arrays

Outcome = tuple[object, Any, bool, bool, Info]
"""What a step gives one agent: observation, reward, terminated, truncated, info."""

SUPPORTED = "all agents of possible_agents begin an episode together and end it together"


def is_parallel(env: object) -> TypeGuard[Any]:
    """Whether ``env`` has PettingZoo's parallel interface. ConfigError where it has the other one."""
    if not hasattr(env, "possible_agents"):
        return False
    if hasattr(env, "agent_iter"):
        raise ConfigError(
            "it has PettingZoo's interface of agents that take turns (AEC): give its parallel_env"
        )
    return callable(getattr(env, "observation_space", None))


class Joint(ExaEnv):
    """A simulation of several agents as one environment: observations and actions are Tuples, in the
    order of ``agents``, and the reward is the mean over the agents.

    ConfigError where the agents' spaces differ. A step or a reset without some of the agents, and an
    episode that ends for some before others, is an EnvironmentFailure.
    """

    def __init__(self, env: Any) -> None:
        self.agents = list(env.possible_agents)
        if not self.agents:
            raise ConfigError("possible_agents is empty")
        seen = [env.observation_space(agent) for agent in self.agents]
        acted = [env.action_space(agent) for agent in self.agents]
        for what, found in (("observation", seen), ("action", acted)):
            for agent, space in zip(self.agents, found, strict=True):
                if space != found[0]:
                    raise ConfigError(
                        f"agents {self.agents[0]} and {agent} have different {what} spaces, {found[0]}"
                        f" and {space}: agents that share a policy need the same ones"
                    )
        self.observation_space, self.action_space = spaces.Tuple(seen), spaces.Tuple(acted)
        self.metadata = getattr(env, "metadata", {})
        self.render_mode = getattr(env, "render_mode", None)
        self._env = env
        each = zip(seen, acted, strict=True)
        self._seats = [Member(self, place, *own) for place, own in enumerate(each)]
        self.members: Sequence[Env] = self._seats
        """The environments of the agents, as they are learned from."""

    def see_through(self, wrap: Callable[[Env], Env]) -> None:
        """Wrap each of the members."""
        self.members = [wrap(seat) for seat in self._seats]

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[tuple[object, ...], Info]:
        self._keep()
        super().reset(seed=seed)
        if seed is None:  # so that a whole series of episodes follows from the first seed
            seed = int(self.np_random.integers(2**31))
        found = self._env.reset(seed=seed, options=options)
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise EnvironmentFailure(
                "reset of a parallel environment returns observations and infos, each by agent",
                "shape",
            )
        observations, infos = found
        self._check_present("reset", observations)
        self._firsts = [(deepcopy(observations[a]), infos.get(a) or {}) for a in self.agents]
        return tuple(first[0] for first in self._firsts), dict(infos)

    def step(self, action: Any) -> tuple[tuple[object, ...], Any, bool, bool, Info]:
        seen, rewards, terminated, truncated, infos = zip(*self.play(action), strict=True)
        over, told = any(terminated) or any(truncated), dict(zip(self.agents, infos, strict=True))
        return seen, np.mean(rewards, 0), over and all(terminated), over and any(truncated), told

    def play(self, actions: Sequence[object]) -> list[Outcome]:
        """What one step gives each agent."""
        found = self._env.step(dict(zip(self.agents, actions, strict=True)))
        if not isinstance(found, tuple | list) or len(found) != 5:
            raise EnvironmentFailure(
                "step of a parallel environment returns observations, rewards, terminated, truncated"
                " and infos, each by agent",
                "shape",
            )
        seen, rewards, terminated, truncated, infos = found
        for each in (seen, rewards, terminated, truncated):
            self._check_present("step", each)
        outcomes = [
            (seen[a], rewards[a], bool(terminated[a]), bool(truncated[a]), infos.get(a) or {})
            for a in self.agents
        ]
        over = [a for a in self.agents if terminated[a] or truncated[a]]
        if 0 < len(over) < len(self.agents):
            raise EnvironmentFailure(
                f"the episode ended for {', '.join(map(str, over))} and not for the other agents:"
                f" {SUPPORTED}",
                "shape",
            )
        return outcomes

    def first_of(self, place: int) -> tuple[object, Info]:
        """What the last reset gave one agent."""
        return self._firsts[place]

    def advance(self) -> None:
        """Step the simulation with the actions that the members were offered."""
        try:
            actions = [seat.offered.popleft() for seat in self._seats]
        except IndexError:
            raise EnvironmentFailure("a step before every agent had an action") from None
        self._keep()
        for seat, outcome in zip(self._seats, self.play(actions), strict=True):
            seat.outcomes.append(outcome)

    def forget(self) -> None:
        """Drop offers and outcomes that no member has taken."""
        for seat in self._seats:
            seat.offered.clear()
            seat.outcomes.clear()

    def render(self) -> Any:
        return self._env.render()

    def close(self) -> None:
        self._env.close()

    def describe(self) -> dict[str, str]:
        own = self._env.describe() if hasattr(self._env, "describe") else {}
        return {**own, "agents": ", ".join(map(str, self.agents))}

    @property
    def has_state(self) -> bool:
        bare = type(getattr(self._env, "unwrapped", self._env))
        return hasattr(bare, "get_state") and hasattr(bare, "set_state")

    def get_state(self) -> Arrays:
        state: Arrays = getattr(self._env, "unwrapped", self._env).get_state()
        return state

    def set_state(self, state: Arrays) -> None:
        getattr(self._env, "unwrapped", self._env).set_state(state)

    def _keep(self) -> None:
        """Copy what members have still to take before the simulation moves on: it may write into the
        same arrays again."""
        for seat in self._seats:
            if seat.outcomes:
                seen, reward, terminated, truncated, info = seat.outcomes[-1]
                told = {name: copy(value) for name, value in info.items()}
                seat.outcomes[-1] = deepcopy(seen), copy(reward), terminated, truncated, told

    def _check_present(self, call: str, by_agent: Mapping[Any, object]) -> None:
        absent = [str(agent) for agent in self.agents if agent not in by_agent]
        if absent:
            raise EnvironmentFailure(
                f"{call} returned nothing for {', '.join(absent)}: {SUPPORTED}", "shape"
            )


class Member(ExaEnv):
    """One agent's environment in a ``Joint``. The first member resets, keeps and closes the
    simulation; the others begin with what its reset gave them."""

    def __init__(self, joint: Joint, place: int, seen: Space, acted: Space) -> None:
        self.joint = joint
        self.observation_space, self.action_space = seen, acted
        self.offered: deque[object] = deque()
        self.outcomes: deque[Outcome] = deque()
        self.agent = joint.agents[place]
        self._place = place

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[object, Info]:
        if not self._place:
            self.joint.reset(seed=seed)
        return self.joint.first_of(self._place)

    def step(self, action: object) -> Outcome:
        """The outcome of the action that was offered, which is ``action``."""
        if not self.outcomes:
            self.joint.advance()
        return self.outcomes.popleft()

    def close(self) -> None:
        if not self._place:
            self.joint.close()

    @property
    def has_state(self) -> bool:
        return self.joint.has_state

    def get_state(self) -> Arrays:
        return {"place": np.array(self._place)} if self._place else self.joint.get_state()

    def set_state(self, state: Arrays) -> None:
        if not self._place:
            self.joint.set_state(state)


def members_of(env: Env) -> Sequence[Env]:
    """The environments of the agents of a simulation of several; of any other, itself."""
    bare = env.unwrapped
    return bare.members if isinstance(bare, Joint) else (env,)


def joint_of(env: Env) -> Joint | None:
    """The simulation that ``env`` is a member of, or is; None where it has one agent only."""
    bare = env.unwrapped
    if isinstance(bare, Member):
        return bare.joint
    return bare if isinstance(bare, Joint) else None
