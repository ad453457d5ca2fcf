"""Several policies for the agents of one simulation, as one agent.

Each policy is an agent of its own, with the rows of its places: of B environments, row i belongs to
place i modulo the number of agents in a simulation. So blocks, weights and checkpoints go the way
they always go, with the parts of each policy under its name.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np

from exarl.agents.base import ExaAgent, NoParameters, Spread, Team, absent_in
from exarl.agents.constraints import COSTS
from exarl.learning.exploration import Streams
from exarl.types import (
    ABSENT,
    FAILURES,
    Arrays,
    ArraySpec,
    Block,
    EnvSpec,
    Metrics,
    PolicySpec,
    Steps,
)

COMMON = (ABSENT, COSTS, "discounted_return")
"""What blocks record alike whatever the policy."""
MEMORY = "memory/"


class Policies(ExaAgent):
    """``make`` builds the agent of each policy of ``spec``."""

    def __init__(
        self, spec: EnvSpec, make: Callable[[PolicySpec, int], ExaAgent], seed: int
    ) -> None:
        super().__init__(spec, NoParameters(), _no_network, seed)
        self.agents = {
            policy.name: make(
                policy, int(np.random.SeedSequence([seed, i]).generate_state(1)[0] >> 1)
            )
            for i, policy in enumerate(spec.policies)
        }
        self._of = {policy.name: policy for policy in spec.policies}
        first = next(iter(self.agents.values()))
        self.learns_in_team = first.learns_in_team
        self.return_discount, self.costs = first.return_discount, first.costs
        self.lead_steps = first.lead_steps
        self.recorded = {**absent_in(spec)}
        self.memory = {}
        for name, agent in self.agents.items():
            self.recorded |= {_recorded(name, key): each for key, each in agent.recorded.items()}
            self.memory = {**self.memory, **{f"{name}/{k}": a for k, a in agent.memory.items()}}
        self.metrics = tuple(
            f"{name}/{metric}"
            for name, agent in self.agents.items()
            for metric in ("reward_mean", *agent.metrics)
        )
        sizes = [len(agent.get_weights()) for agent in self.agents.values()]
        self._edges = [*np.cumsum(sizes)[:-1]]
        self._made = dict.fromkeys(self.agents, 0)  # updates

    # -- acting -----------------------------------------------------------------------------------

    def action(
        self,
        observations: np.ndarray,
        rng: Streams | None = None,
        memory: Arrays | None = None,
    ) -> tuple[np.ndarray, Arrays]:
        width = len(observations)
        actions = self.spec.action.zeros(width)
        extras = {} if rng is None else {n: a.zeros(width) for n, a in self._chosen().items()}
        for name, agent in self.agents.items():
            policy, rows = self._of[name], self._rows(name, width)
            seen = narrowed(observations[rows], policy.spec.observation)
            own = {n: (memory or {})[f"{name}/{n}"][rows] for n in agent.memory}
            streams = None if rng is None else Selected(rng, rows)
            # An agent of a user's own without memory need not take one.
            chosen, made = agent.action(seen, streams, *([own] if own else []))
            actions[rows] = widened(np.asarray(chosen), self.spec.action)
            for key, array in made.items():
                extras[_recorded(name, key)][rows] = array
            for key, array in own.items():
                assert memory is not None
                memory[f"{name}/{key}"][rows] = array
        return actions, extras

    def set_weights(self, weights: np.ndarray) -> None:
        parts = np.split(weights, self._edges)
        for agent, part in zip(self.agents.values(), parts, strict=True):
            agent.set_weights(part)

    def begin_episode(self, number: int) -> None:
        for agent in self.agents.values():
            agent.begin_episode(number)

    def prepare(self, block: Block, spread: Spread | None = None) -> Block:
        recorded = dict(block.recorded)
        for name, agent in self.agents.items():
            own = self._own(name, block)
            made = agent.prepare(own)
            for key, array in made.recorded.items():
                if array is not own.recorded.get(key):
                    whole = np.array(recorded[_recorded(name, key)])
                    whole[:, self._rows(name, block.rewards.shape[1])] = array
                    recorded[_recorded(name, key)] = whole
        return dataclasses.replace(block, recorded=recorded)

    # -- learning ---------------------------------------------------------------------------------

    def join_team(self, team: Team) -> None:
        for agent in self.agents.values():
            agent.join_team(team)

    def set_learner(self) -> None:
        for name, agent in self.agents.items():
            if self.total_steps is not None:
                agent.total_steps = self._share(name, self.total_steps)
            agent.set_learner()

    def report_compiling(self, compiling: Callable[[], AbstractContextManager[None]]) -> None:
        super().report_compiling(compiling)
        for agent in self.agents.values():
            agent.report_compiling(compiling)

    def train(self, block: Block) -> Metrics:
        return self._learn(block, lambda name, own: self.agents[name].train(own))

    def train_in_team(self, block: Block | None, steps: int) -> Metrics:
        def learn(name: str, own: Block | None) -> Metrics:
            return self.agents[name].train_in_team(own, self._share(name, steps))

        return self._learn(block, learn)

    def _learn(self, block: Block | None, learn: Callable[[str, Any], Metrics]) -> Metrics:
        """Let each policy learn from its part; ``updates`` are those of all of them."""
        told: Metrics = {}
        before = sum(self._made.values())
        for name in self.agents:
            own = None if block is None else self._own(name, block)
            metrics = dict(learn(name, own))
            self._made[name] += int(metrics.pop("updates", 0))
            if own is not None and len(own.episode_returns):
                told[f"{name}/reward_mean"] = float(own.episode_returns.mean())
            told |= {f"{name}/{metric}": value for metric, value in metrics.items()}
        return {"updates": sum(self._made.values()) - before, **told}

    def ended_schedules(self, steps: int, updates: int) -> Mapping[str, str]:
        return {
            f"{name}: {what}": line
            for name, agent in self.agents.items()
            for what, line in agent.ended_schedules(
                self._share(name, steps), self._made[name]
            ).items()
        }

    def get_weights(self) -> np.ndarray:
        return np.concatenate([agent.get_weights() for agent in self.agents.values()])

    def weights_later(self) -> Callable[[], np.ndarray]:
        later = [agent.weights_later() for agent in self.agents.values()]
        return lambda: np.concatenate([each() for each in later])

    # -- keeping ----------------------------------------------------------------------------------

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        arrays: Arrays = {"weights": self.get_weights()}
        numbers: dict[str, Any] = {"made": dict(self._made)}
        for name, agent in self.agents.items():
            own, numbers[name] = agent.state()
            arrays |= {f"{name}/{key}": array for key, array in own.items()}
        return arrays, numbers

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        self._made |= numbers["made"]
        for name, agent in self.agents.items():
            prefix = f"{name}/"
            own = {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
            agent.restore(own, numbers[name])

    # -- parts ------------------------------------------------------------------------------------

    def _share(self, name: str, steps: int) -> int:
        """How many of ``steps`` are those of a policy."""
        return steps * len(self._of[name].places) // self.spec.agents

    def _rows(self, name: str, width: int) -> np.ndarray:
        return _rows_of(self._of[name].places, self.spec.agents, width)

    def _chosen(self) -> dict[str, ArraySpec]:
        """What policies record as they act."""
        return {
            n: a for n, a in self.recorded.items() if n not in COMMON and not n.startswith(MEMORY)
        }

    def _own(self, name: str, block: Block) -> Block:
        """The part of a block that is a policy's."""
        agent, policy = self.agents[name], self._of[name]
        rows = self._rows(name, block.rewards.shape[1])
        seen, acted = policy.spec.observation, policy.spec.action
        ended = np.isin(np.nonzero(block.ended.T)[0], rows)  # by environment, then by time
        lead = block.lead
        if lead is not None:
            lead = Steps(*(np.asarray(array)[:, rows] for array in lead))
            lead = lead._replace(
                observations=narrowed(np.asarray(lead.observations), seen),
                actions=narrowed(np.asarray(lead.actions), acted),
                next_observations=narrowed(np.asarray(lead.next_observations), seen),
            )
        return dataclasses.replace(
            block,
            observations=narrowed(block.observations[:, rows], seen),
            actions=narrowed(block.actions[:, rows], acted),
            rewards=block.rewards[:, rows],
            terminated=block.terminated[:, rows],
            truncated=block.truncated[:, rows],
            final_observations=narrowed(block.final_observations[ended], seen),
            episode_returns=block.episode_returns[ended],
            episode_lengths=block.episode_lengths[ended],
            recorded={k: block.recorded[_recorded(name, k)][:, rows] for k in agent.recorded},
            failures=np.zeros((0, 1 + len(FAILURES)), np.int64),
            lead=lead,
            episode_info=(),
        )


class Selected(Streams):
    """The streams of some rows; drawing advances those of all rows."""

    def __init__(self, whole: Streams, rows: np.ndarray) -> None:
        self._whole, self._places = whole, rows

    def __len__(self) -> int:
        return len(self._places)

    def uniform(self, count: int) -> np.ndarray:
        drawn: np.ndarray = self._whole.uniform(count)[self._places]
        return drawn


def narrowed(array: np.ndarray, spec: ArraySpec) -> np.ndarray:
    """Arrays of a policy's own form from those of the form that all policies have in common."""
    if array.shape[array.ndim - len(spec.shape) :] == spec.shape and array.dtype == spec.dtype:
        return array
    size = math.prod(spec.shape)
    cut = array[..., :size].reshape(*array.shape[:-1], *spec.shape)
    return cut.astype(spec.dtype)


def widened(array: np.ndarray, common: ArraySpec) -> np.ndarray:
    """Rows [N, ...] of a policy's own form in the form that all policies have in common."""
    if array.shape[1:] == common.shape:
        return array
    flat = array.reshape(len(array), -1)
    wide = np.zeros((len(array), *common.shape), common.dtype)
    wide[:, : flat.shape[1]] = flat
    return wide


def _recorded(name: str, key: str) -> str:
    """The name in a block of what a policy records."""
    if key in COMMON:
        return key
    if key.startswith(MEMORY):
        return f"{MEMORY}{name}/{key.removeprefix(MEMORY)}"
    return f"{name}/{key}"


@cache
def _rows_of(places: tuple[int, ...], agents: int, width: int) -> np.ndarray:
    return np.flatnonzero(np.isin(np.arange(width) % agents, places))


def _no_network(outputs: int, extra: int = 0) -> Any:
    raise NotImplementedError
