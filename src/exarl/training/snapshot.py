"""Snapshots of a learner's actors while all of them go on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exarl.comm.messages import LAST, ActorState
from exarl.types import ACTOR_PHASES, Arrays, Block

STATE_TIMEOUT = (
    "seconds a checkpoint waits for an actor's state, then it keeps the last one known;"
    " never less than three of its longest blocks"
)
"""What the parameter ``state_timeout`` of the workflows means."""
_ACTING = [ACTOR_PHASES.index(phase) for phase in ("env", "inference", "restart")]


class SentBlock(NamedTuple):
    """A block that has arrived: the actor it comes from, and which of the actor's blocks it is."""

    actor: int
    number: int  # from 1 on
    block: Block


@dataclass(frozen=True)
class Snapshot:
    """A learner's actors at one moment: the states of their environments, the blocks under way, and
    the actors that have not answered, whose environments' states may be older."""

    envs: Arrays
    pending: list[Block]
    silent: list[int] = field(default_factory=list)


class SnapshotTracker:
    """Keeps account of snapshots in the manner of Chandy and Lamport.

    The learner asks every actor for the state of its environments. Each answers between two blocks
    and says how many blocks it had sent by then. Those states and the blocks sent before them that
    were not trained when the learner asked are the snapshot. An actor that does not answer within
    ``timeout`` is silent: the last state known of it is kept, and all of its blocks that have come.
    ``known`` are the states that actors start with in a resumed run.
    """

    def __init__(self, timeout: float, known: Mapping[int, Arrays] | None = None) -> None:
        self.number = LAST  # of the snapshot that was asked for last
        self.answers: dict[int, ActorState] = {}  # to that, by actor
        self._begun = 0
        self._timeout = timeout
        self._longest_block = 0.0
        self._states = dict(known or {})
        self._owed: dict[int, float] = {}  # actors that owe an answer, and since when
        self._recorded: list[SentBlock] | None = None  # of the snapshot under way

    @property
    def timeout(self) -> float:
        """Seconds after which an actor counts as silent. Actors answer between two blocks."""
        return max(self._timeout, 3 * self._longest_block)

    @property
    def under_way(self) -> bool:
        """Whether a snapshot has begun and ``snapshot`` has not been called for it."""
        return self._recorded is not None

    def begin(self, actors: Iterable[int], waiting: Iterable[SentBlock]) -> int:
        """Begin a snapshot of ``actors``, of whom ``waiting`` blocks have come and are not trained.

        Returns the number that the actors are to answer with.
        """
        self._begun += 1
        self.number, self.answers, self._recorded = self._begun, {}, list(waiting)
        for actor in actors:
            self.ask(actor)
        return self.number

    def ask(self, actor: int) -> None:
        """This actor owes an answer from now on, if it did not before."""
        self._owed.setdefault(actor, time.monotonic())

    def begin_last(self) -> None:
        """From here on only last states count as answers."""
        self.number, self.answers, self._recorded = LAST, {}, None

    def arrived(self, sent: SentBlock) -> None:
        """A block has come."""
        acting = float(sent.block.seconds[_ACTING].sum())
        self._longest_block = max(self._longest_block, acting)
        if self._recorded is not None:
            self._recorded.append(sent)

    def answered(self, actor: int, answer: ActorState, state: Arrays) -> None:
        """A state has come, perhaps for an earlier snapshot that was completed without it."""
        if actor in self.answers:
            return  # an older one, which the newest has overtaken
        self._states[actor] = state
        if answer.snapshot == self.number:
            self.answers[actor] = answer
            self._owed.pop(actor, None)

    def start(self, actor: int, state: Arrays) -> None:
        """An actor joins, with this state of its environments."""
        self._states[actor] = state

    def remove(self, actor: int) -> None:
        """An actor is lost, and its environments with it; its recorded blocks stay."""
        for kept in (self._states, self._owed, self.answers):
            kept.pop(actor, None)

    def settled(self) -> bool:
        """Whether no answer is to be waited for: those still owed are overdue."""
        latest = time.monotonic() - self.timeout
        return all(since < latest for since in self._owed.values())

    def states(self) -> Arrays:
        """The last known states of all actors."""
        return {name: a for state in self._states.values() for name, a in state.items()}

    def snapshot(self) -> Snapshot:
        """The snapshot under way, which ends here; pending blocks with the oldest weights first."""
        assert self._recorded is not None, "no snapshot has begun"
        pending = [
            sent
            for sent in self._recorded
            if sent.actor not in self.answers or sent.number <= self.answers[sent.actor].sent
        ]
        pending.sort(key=lambda sent: (sent.block.version, sent.actor, sent.number))
        self._recorded = None
        return Snapshot(self.states(), [sent.block for sent in pending], sorted(self._owed))


def states_of(states: Arrays, env_ids: Iterable[int]) -> Arrays:
    """Of the states of a run's environments, those of ``env_ids``."""
    wanted = {str(env_id) for env_id in env_ids}
    return {name: a for name, a in states.items() if name.partition("/")[0] in wanted}
