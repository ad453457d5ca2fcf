"""Simulations of several agents, which have PettingZoo's parallel interface.

A ``Joint`` has one agent's environment for each agent, its ``members``. ``act`` moves the simulation
with the actions of the agents that are there; a step of a member then tells what came of it for its
agent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from fnmatch import fnmatchcase
from typing import Any, TypeGuard

import numpy as np
from gymnasium import spaces

from exarl.envs.base import Env, ExaEnv, Info, Space
from exarl.envs.masks import KEY
from exarl.errors import ConfigError, EnvironmentFailure
from exarl.types import Arrays

Outcome = tuple[object, Any, bool, bool, Info]
"""What a step gives one agent: observation, reward, terminated, truncated, info."""


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
    order of ``agents``, and the reward is the mean over the agents that are there.

    ``present`` says which agents are there; an agent leaves with the step that ends its episode, and
    comes when it is among the observations again. Of one that is not there, the observation is void and
    the action is ignored. The simulation is ``over`` when no agent is left. A step without one of the
    agents that were there is an EnvironmentFailure.
    """

    def __init__(self, env: Any) -> None:
        self.agents = list(env.possible_agents)
        if not self.agents:
            raise ConfigError("possible_agents is empty")
        seen = [env.observation_space(agent) for agent in self.agents]
        acted = [env.action_space(agent) for agent in self.agents]
        self.observation_space, self.action_space = spaces.Tuple(seen), spaces.Tuple(acted)
        self.metadata = getattr(env, "metadata", {})
        self.render_mode = getattr(env, "render_mode", None)
        self.common_reward = False
        """Whether every agent is paid the mean over the agents."""
        self.policies: dict[str, tuple[int, ...]] = {}
        """The places of the agents of each policy; none where all share one."""
        self.present = [False] * len(self.agents)
        self.over = True
        self.steps = 0
        """Of the simulation, since it was reset."""
        self._env = env
        self._void = [_some(space) for space in seen]  # in place of observations that there are not
        self._firsts: list[tuple[object, Info]] = [(each, {}) for each in self._void]
        self._outcomes: list[Outcome | None] = []
        each = zip(seen, acted, strict=True)
        self._seats = [Member(self, place, *own) for place, own in enumerate(each)]
        self.members: Sequence[Env] = self._seats
        """The environments of the agents, as they are learned from."""

    def see_through(self, wrap: Callable[[Env], Env]) -> None:
        """Wrap each of the members."""
        self.members = [wrap(seat) for seat in self._seats]

    def share(self, policies: Mapping[str, str]) -> None:
        """Let agents share policies as these patterns say; without any, all of them one. ConfigError
        where agents that share a policy have different spaces, or an agent has no policy or two."""
        self.policies = assigned(policies, [str(agent) for agent in self.agents])
        for places in self.policies.values() or [tuple(range(len(self.agents)))]:
            for what in ("observation", "action"):
                found = getattr(self, f"{what}_space")
                first, other = places[0], [p for p in places if found[p] != found[places[0]]]
                if other:
                    raise ConfigError(
                        f"agents {self.agents[first]} and {self.agents[other[0]]} have different {what}"
                        f" spaces, {found[first]} and {found[other[0]]}: agents that share a policy"
                        " need the same ones (--policies names several)"
                    )

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[tuple[object, ...], Info]:
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
        self.steps, self.present = 0, [agent in observations for agent in self.agents]
        if not any(self.present):
            raise EnvironmentFailure("reset returned no observation of any agent", "shape")
        self.over = False
        for place, agent in enumerate(self.agents):
            self._firsts[place] = deepcopy(self._void[place]), {}
            if self.present[place]:
                self._firsts[place] = deepcopy(observations[agent]), infos.get(agent) or {}
        return tuple(first[0] for first in self._firsts), dict(infos)

    def step(self, action: Any) -> tuple[tuple[object, ...], Any, bool, bool, Info]:
        self.act(action)
        given = [outcome for outcome in self._outcomes if outcome is not None]
        rewards, cut = [outcome[1] for outcome in given], any(outcome[3] for outcome in given)
        seen = tuple(
            outcome[0] if outcome is not None else deepcopy(first[0])
            for outcome, first in zip(self._outcomes, self._firsts, strict=True)
        )
        each = zip(self.agents, self._outcomes, strict=True)
        infos: Info = {agent: outcome[4] for agent, outcome in each if outcome is not None}
        return seen, np.mean(rewards, 0), self.over and not cut, self.over and cut, infos

    def act(self, actions: Sequence[object]) -> None:
        """Step the simulation with the actions of the agents that are there."""
        given = zip(self.agents, self.present, actions, strict=True)
        found = self._env.step({agent: action for agent, here, action in given if here})
        if not isinstance(found, tuple | list) or len(found) != 5:
            raise EnvironmentFailure(
                "step of a parallel environment returns observations, rewards, terminated, truncated"
                " and infos, each by agent",
                "shape",
            )
        seen, rewards, terminated, truncated, infos = found
        here = [agent for agent, present in zip(self.agents, self.present, strict=True) if present]
        self._check_given(here, found)
        if self.common_reward:
            rewards = dict.fromkeys(here, np.mean([rewards[agent] for agent in here], 0))
        listed: Any = getattr(self._env, "agents", seen)
        self.steps += 1
        self._outcomes = []
        for place, agent in enumerate(self.agents):
            over = bool(terminated.get(agent)) or bool(truncated.get(agent))
            if self.present[place]:
                ends = bool(terminated[agent]), bool(truncated[agent])
                told = infos.get(agent) or {}
                self._outcomes.append((seen[agent], rewards[agent], *ends, told))
                self.present[place] = not over
                continue
            self._outcomes.append(None)
            if agent in seen and agent in listed and not over:
                self.present[place] = True
                self._firsts[place] = deepcopy(seen[agent]), infos.get(agent) or {}
        self.over = not any(self.present)

    def first_of(self, place: int) -> tuple[object, Info]:
        """What an agent saw when it came; void if it is not there."""
        return self._firsts[place]

    def outcome_of(self, place: int) -> Outcome:
        """What the last step gave an agent that was there."""
        outcome = self._outcomes[place]
        assert outcome is not None, "the agent was not there"
        return outcome

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

    def _check_given(self, here: Sequence[Any], by_agent: Sequence[Mapping[Any, object]]) -> None:
        absent = [str(a) for a in here if not all(a in each for each in by_agent[:4])]
        if absent:
            raise EnvironmentFailure(
                f"step returned nothing for {', '.join(absent)}: an agent that leaves has terminated or"
                " is truncated in its last step",
                "shape",
            )


class Member(ExaEnv):
    """One agent's environment in a ``Joint``. The first member resets, keeps and closes the
    simulation; the others begin with what its reset gave them, or when their agent comes."""

    def __init__(self, joint: Joint, place: int, seen: Space, acted: Space) -> None:
        self.joint = joint
        self.observation_space, self.action_space = seen, acted
        self.agent = joint.agents[place]
        self.place = place

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[object, Info]:
        if not self.place and self.joint.over:
            self.joint.reset(seed=seed)
        return self.joint.first_of(self.place)

    def step(self, action: object) -> Outcome:
        """The outcome of the action that the simulation was moved with."""
        return self.joint.outcome_of(self.place)

    def close(self) -> None:
        if not self.place:
            self.joint.close()

    @property
    def has_state(self) -> bool:
        return self.joint.has_state

    def get_state(self) -> Arrays:
        return {"place": np.array(self.place)} if self.place else self.joint.get_state()

    def set_state(self, state: Arrays) -> None:
        if not self.place:
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


def assigned(policies: Mapping[str, str], agents: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The places of the agents whose names match each policy's pattern; ConfigError where an agent
    has no policy or two, or a policy no agent."""
    if not policies:
        return {}
    for agent in agents:
        own = [name for name, pattern in policies.items() if fnmatchcase(agent, pattern)]
        if len(own) != 1:
            has = f"the policies {' and '.join(own)}" if own else "no policy"
            raise ConfigError(f"policies: agent {agent} has {has}")
    found = {
        name: tuple(place for place, agent in enumerate(agents) if fnmatchcase(agent, pattern))
        for name, pattern in policies.items()
    }
    for name, places in found.items():
        if not places:
            there = ", ".join(agents)
            raise ConfigError(f"policies: '{policies[name]}' of {name} matches no agent of {there}")
    return found


def policies_in(env: Env) -> Mapping[str, tuple[int, ...]]:
    """The places of the agents of each policy in a simulation; none where there is one policy."""
    joint = joint_of(env)
    return {} if joint is None else joint.policies


def _some(space: Space) -> object:
    """Always the same observation of a space, with a mask that allows everything."""
    like = deepcopy(space)
    like.seed(0)
    found: object = like.sample()
    if isinstance(found, dict) and KEY in found:
        found[KEY] = np.ones_like(found[KEY])
    return found
