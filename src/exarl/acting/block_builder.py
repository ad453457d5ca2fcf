"""Building blocks: what environments did and what a policy chose, put together step by step.

The owner of a ``BlockBuilder`` acts for its environments: their random streams and the policy's memory
of them are kept here, whether the environments are in this process or on another rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from exarl.acting.draft import Draft, stack_rows
from exarl.acting.env_batch import named_for
from exarl.acting.lead import Lead
from exarl.agents.base import ExaAgent
from exarl.agents.constraints import COSTS
from exarl.comm.codec import MOST_TOLD
from exarl.envs.episode import check_finite
from exarl.learning.exploration import Streams, Together
from exarl.types import ABSENT, PLACE, Arrays, Block, Cut, End, EpisodeInfo, Row

BEGUN = "begun"
"""Prefix of the names under which a state holds an unfinished block: ``3/begun/actions``."""
CHOICE = "log_prob"
"""What an agent records that learns from the probability with which it chose an action."""


class PolicyInput(NamedTuple):
    """What a policy acts on: [B, ...] observations, a random stream for each, and its memory."""

    observations: np.ndarray
    streams: Streams
    memory: Arrays


class ActingPolicy:
    """An agent as it acts in training; ``fixed``: always with the first action."""

    def __init__(self, agent: ExaAgent, fixed: bool = False) -> None:
        self._agent = agent
        self._fixed = fixed

    def __call__(self, asked: PolicyInput) -> tuple[np.ndarray, Arrays]:
        """The actions and what is recorded with them; changes the memory in place."""
        if self._fixed:
            return self._agent.spec.action.zeros(len(asked.observations)), {}
        if not asked.memory:
            return self._agent.action(asked.observations, asked.streams)
        return self._agent.action(*asked)


class BlockBuilder:
    """Builds blocks of T steps of B environments.

    In each step, ``act`` (below) chooses the actions, the caller steps the environments and fills in
    ``row``, and calls ``stepped``; for each environment that failed it calls ``again``, fills in the
    row and calls ``stepped`` once more; then ``advance``. ``seen`` holds the observations at the
    beginning of a block.
    """

    def __init__(
        self, agent: ExaAgent, env_ids: Sequence[int], streams: Streams, block_steps: int
    ) -> None:
        self._agent = agent
        self._env_ids = list(env_ids)
        self._streams = streams
        self._steps = block_steps
        self._memory = {name: spec.zeros(len(env_ids)) for name, spec in agent.memory.items()}
        self._remembered = [n for n in agent.memory if f"memory/{n}" in agent.recorded]
        self._returns = np.zeros(len(env_ids), np.float32)  # discounted, see return_discount
        self._simulations = np.ones(len(env_ids), np.int64)  # begun since the last block
        self._no_costs = np.zeros((len(env_ids), 2, 0), np.float32)
        self._none_absent = np.zeros(0, bool)
        self._ages = np.zeros(len(env_ids), np.int64)  # steps made in the present episodes
        self._placed = PLACE in agent.recorded
        self._lead = Lead(agent.spec, agent.lead_steps, len(env_ids))
        self._draft: Draft | None = None
        self._t = 0
        self._moved = False  # whether the environments have, since the draft was begun
        self.seen = agent.spec.observation.zeros(len(env_ids))

    @property
    def env_ids(self) -> Sequence[int]:
        return self._env_ids

    @property
    def width(self) -> int:
        return len(self._env_ids)

    @property
    def open(self) -> bool:
        """Whether a block has been begun and not yet finished."""
        return self._draft is not None

    @property
    def complete(self) -> bool:
        return self._t == self._steps

    def begin(self) -> None:
        """A new block."""
        self._draft = Draft(self._agent.spec, self._agent.recorded, self._steps, self.width)
        self._draft.observations[0] = self.seen
        self._t, self._moved = 0, False

    def give_up(self) -> None:
        """Drop the block that has been begun, if there is one. Its steps are lost."""
        if self._draft is not None and self._moved:
            self._lead.cut(range(self.width))
        self._draft = None

    def ask(self) -> PolicyInput:
        """The policy's input in this step."""
        draft, t = self._now()
        for name in self._remembered:
            draft.recorded[f"memory/{name}"][t] = self._memory[name]
        if self._placed:
            draft.recorded[PLACE][t] = np.stack([self._env_ids, self._ages], 1)
        return PolicyInput(draft.observations[t], self._streams, self._memory)

    def answer(self, chosen: np.ndarray, extras: Arrays) -> None:
        """Store the actions that the policy chose, and what it recorded."""
        draft, t = self._now()
        draft.actions[t] = chosen
        for name, array in extras.items():
            draft.recorded[name][t] = array

    def took(self, taken: Sequence[tuple[int, Any]]) -> None:
        """Store the actions, by slot, that were taken instead of those that the policy chose.

        Not where the probability of the choice is recorded: such an agent learns from its own choices,
        and what is taken instead is to it the environment's doing.
        """
        if taken and CHOICE not in self._agent.recorded:
            draft, t = self._now()
            for slot, action in taken:
                draft.actions[t, slot] = action

    @property
    def actions(self) -> np.ndarray:
        """The actions [B, ...] of this step."""
        draft, t = self._now()
        actions: np.ndarray = draft.actions[t]
        return actions

    @property
    def row(self) -> Row:
        """Views into which the outcome of this step is written."""
        draft, t = self._now()
        following = draft.observations[t + 1]
        ends = draft.terminated[t], draft.truncated[t]
        costs = draft.recorded[COSTS][t] if self._agent.costs else self._no_costs
        absent = draft.recorded[ABSENT][t] if ABSENT in draft.recorded else self._none_absent
        return Row(following, draft.rewards[t], *ends, costs, absent)

    def stepped(self, ends: Sequence[End], cuts: Sequence[Cut]) -> None:
        """Note, once the row is filled in, which episodes have ended or failed.

        A failed step is dropped, since its result is unknown. The step before it becomes the last of
        its episode, truncated, with the observation it led to. If that step is the last of the block
        before, it stays as it is there: learning continues the end of a block with the value of its
        last observation, exactly as that of a truncated episode. In the lead it is truncated.
        """
        draft, t = self._now()
        self._moved = True
        self._count_begun([*ends, *cuts])
        for end in ends:
            draft.ends[end.slot].append(end)
            self._forget_memory(end.slot)
            self._ages[end.slot] = -1  # 0 at the next step
        if ABSENT in draft.recorded:
            for slot in np.flatnonzero(draft.recorded[ABSENT][t]):
                self._forget_memory(int(slot))
        for i, _, total_reward, length, info in cuts:
            if length and t:
                draft.truncated[t - 1, i] = True
                last = draft.observations[t, i].copy()
                draft.ends[i].append(End(i, last, total_reward, length, info))
            elif not t:
                self._returns[i] = 0
                self._lead.cut([i])
            draft.observations[t, i] = draft.observations[t + 1, i]
            self._forget_memory(i)
            for name in self._remembered:
                draft.recorded[f"memory/{name}"][t, i] = 0
            self._ages[i] = 0
            if self._placed:
                draft.recorded[PLACE][t, i, 1] = 0

    def again(self, policy: ActingPolicy, cut: Cut) -> None:
        """Choose the action of an environment that failed, in its new episode.

        It draws from a separate stream, so that the other environments get the same random numbers as
        without the failure.
        """
        draft, t = self._now()
        own = slice(cut.slot, cut.slot + 1)
        memory = {name: array[own] for name, array in self._memory.items()}
        apart = self._streams.apart(cut.slot, cut.number)
        chosen, extras = policy(PolicyInput(draft.observations[t, own], apart, memory))
        draft.actions[t, own] = chosen
        for name, array in extras.items():
            draft.recorded[name][t, own] = array

    def advance(self) -> None:
        """Go on to the next step."""
        self._t += 1
        self._ages += 1

    def finish(
        self, version: int, restarts: int, failures: np.ndarray, seconds: np.ndarray
    ) -> Block:
        """The finished block. EnvironmentFailure if one of its numbers is not finite."""
        draft, _ = self._now()
        if (discount := self._agent.return_discount) is not None:
            ended = draft.terminated | draft.truncated
            self._sum_up(discount, draft.rewards, ended, draft.recorded["discounted_return"])
        check_finite(self._env_ids, draft.observations, draft.rewards)
        finished = [end for environment in draft.ends for end in environment]
        finals = stack_rows([end.observation for end in finished], draft.observations)
        check_finite([self._env_ids[end.slot] for end in finished], finals[None])
        self._draft = None
        self.seen[...] = draft.observations[-1]
        block = Block(
            draft.observations,
            draft.actions,
            draft.rewards,
            draft.terminated,
            draft.truncated,
            finals,
            np.array([end.total_reward for end in finished], np.float64),
            np.array([end.length for end in finished], np.int64),
            draft.recorded,
            version,
            restarts,
            seconds,
            failures,
            self._lead.steps,
            told(finished),
            int(self._simulations.sum()),
        )
        self._simulations[:] = 0
        self._lead.follow(block)
        return block

    def state(self) -> Arrays:
        """Positions in the random streams, memory, discounted returns and the newest steps, by
        environment number."""
        arrays: Arrays = {}
        for slot, env_id in enumerate(self._env_ids):
            named = {"stream": np.array(self._streams.position), "return": self._returns[slot]}
            named |= {f"memory/{name}": array[slot].copy() for name, array in self._memory.items()}
            named |= self._lead.column(slot)
            named["simulations"] = np.array(self._simulations[slot])
            if self._placed:
                named["age"] = self._ages[slot]
            arrays |= {f"{env_id}/{name}": array for name, array in named.items()}
        return arrays

    def unfinished(self) -> Arrays:
        """The unfinished block, by environment number; empty if there is none."""
        if self._draft is None:
            return {}
        arrays: Arrays = {}
        for slot, env_id in enumerate(self._env_ids):
            named = self._draft.column(slot, self._t)
            arrays |= {f"{env_id}/{BEGUN}/{name}": array for name, array in named.items()}
        return arrays

    def reopen(self, arrays: Arrays) -> None:
        """Continue the block that ``unfinished`` returned, if ``arrays`` holds one."""
        columns = [named_for(f"{env_id}/{BEGUN}/", arrays) for env_id in self._env_ids]
        steps = {len(column["actions"]) if column else -1 for column in columns}
        if len(steps) != 1 or steps == {-1}:
            return
        self.begin()
        draft, _ = self._now()
        self._t = steps.pop()
        self._moved = self._t > 0
        for slot, column in enumerate(columns):
            draft.fill(slot, column)

    def moved(self, cuts: Sequence[Cut], seen: np.ndarray) -> None:
        """Note that these episodes were lost between two steps; ``seen`` are the new observations."""
        if self._draft is None:
            self._count_begun(cuts)
            self.forget([cut.slot for cut in cuts])
            return
        for cut in cuts:
            self._draft.observations[self._t + 1, cut.slot] = seen[cut.slot]
        self.stepped((), cuts)

    def restore(self, arrays: Arrays, changed: Sequence[int]) -> None:
        """Take over what ``state`` returned; the slots in ``changed`` are in another episode."""
        for slot, env_id in enumerate(self._env_ids):
            if own := named_for(f"{env_id}/", arrays):
                self._streams.seek(int(own["stream"]))
                self._returns[slot] = own.get("return", 0.0)
                self._simulations[slot] = own.get("simulations", 0)
                self._lead.fill(slot, own)
                self._ages[slot] = int(own.get("age", 0))
                for name, array in self._memory.items():
                    array[slot] = own.get(f"memory/{name}", 0)
        self.forget(changed)

    def forget(self, slots: Sequence[int]) -> None:
        """Reset the discounted return and the memory of these slots, whose episodes are over."""
        self._lead.cut(slots)
        for slot in slots:
            self._returns[slot] = self._ages[slot] = 0
            self._forget_memory(slot)

    def _count_begun(self, over: Sequence[End | Cut]) -> None:
        """Count the episodes that began where these were over."""
        for each in over:
            self._simulations[each.slot] += 1

    def _forget_memory(self, slot: int) -> None:
        for array in self._memory.values():
            array[slot] = 0

    def _now(self) -> tuple[Draft, int]:
        assert self._draft is not None, "no block has been begun"
        return self._draft, self._t

    def _sum_up(
        self, discount: float, rewards: np.ndarray, ended: np.ndarray, sums: np.ndarray
    ) -> None:
        """Write the discounted sum of each episode's rewards so far, at every step, into ``sums``."""
        for t in range(len(rewards)):
            self._returns = np.float32(discount) * self._returns + rewards[t]
            sums[t] = self._returns
            self._returns[ended[t]] = 0


def act(policy: ActingPolicy, parts: Sequence[BlockBuilder]) -> None:
    """Choose the actions of all ``parts`` in one batch."""
    asked = [part.ask() for part in parts]
    if len(parts) == 1:
        parts[0].answer(*policy(asked[0]))
        return
    names = asked[0].memory
    whole = PolicyInput(
        np.concatenate([each.observations for each in asked]),
        Together([each.streams for each in asked]),
        {name: np.concatenate([each.memory[name] for each in asked]) for name in names},
    )
    chosen, extras = policy(whole)
    start = 0
    for part, each in zip(parts, asked, strict=True):
        rows = slice(start, start := start + part.width)
        for name in names:
            each.memory[name][...] = whole.memory[name][rows]
        part.answer(chosen[rows], {name: array[rows] for name, array in extras.items()})


def told(ends: Sequence[End]) -> tuple[EpisodeInfo, ...]:
    """What a block tells of the last of these episodes; nothing where none has numbers."""
    last = tuple(end.info for end in ends[-MOST_TOLD:])
    return last if any(last) else ()
