"""Learner and actors as they see each other, whatever connects them."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from exarl.training.snapshot import Snapshot
from exarl.types import Arrays, Block


@dataclass(frozen=True)
class Tally:
    """What became of the blocks: those produced were trained, left or dropped."""

    produced: int = 0
    left: int = 0  # arrived or queued but never trained; kept in the checkpoint
    dropped: int = 0  # overwritten or abandoned
    redundant: int = 0  # reads of a block that had been read before
    missing: int = 0  # actors that did not answer in time

    def to_json(self) -> dict[str, int]:
        return dataclasses.asdict(self)

    def blocks(self) -> dict[str, int]:
        """The counts of blocks alone, for the summary."""
        return {name: count for name, count in self.to_json().items() if name != "missing"}

    def __add__(self, other: Tally) -> Tally:
        sums = {name: value + getattr(other, name) for name, value in self.to_json().items()}
        return Tally(**sums)


class BlockSink(Protocol):
    """The learner as an actor sees it."""

    def wait_for_grant(self, holding: bool = False) -> int | None:
        """Block until the learner grants another block. Return the weight version to act with, now
        set in the agent, or None when the run stops.

        ``holding``: the actor has a block that is not handed over. It then sends no state, since the
        state is after that block and a checkpoint would have the one without the other.
        """

    def stopped(self) -> bool:
        """Whether to abandon the present block. Cheap enough to ask at every step."""

    def put(self, block: Block) -> None:
        """Hand over a block, without waiting for the learner unless its queue is full."""

    def close(self, state: Arrays, tally: Tally) -> None:
        """Send the last state of the environments."""


class BlockSource(Protocol):
    """The actors as a learner sees them."""

    def publish(self, weights: Callable[[], np.ndarray], version: int, trained: int) -> None:
        """Offer new weights to the actors; ``trained`` blocks of all learners went into them."""

    def take(self, version: int) -> Block | None:
        """The block to train on next, if there is one now."""

    def ask_states(self) -> None:
        """Ask every actor for the state of its environments after its present block."""

    def states(self) -> Snapshot | None:
        """Once all actors have answered or are overdue: their states, and the blocks that were under
        way when they were asked. None before that."""

    def stop(self, patience: float | None) -> tuple[Snapshot, Tally]:
        """Stop every actor. Return their last states with the blocks never trained, and the tally.

        Waits until actors finish a step, at most ``patience`` seconds (None: as long as for the
        states of a checkpoint).
        """


class ActorEvent(NamedTuple):
    """An event of an actor: one of the kinds below, with its bytes or the reason of a loss."""

    kind: str
    actor: int
    payload: bytes = b""
    error: str = ""


READY, BLOCK, STATE, LOST, NOTE = "ready", "block", "state", "lost", "note"
"""NOTE is about no actor: ``error`` is a line for the user."""


class ActorPool(Protocol):
    """Actors that are started on demand and may be lost; their numbers are never used again."""

    events: deque[ActorEvent]
    """Events that have not been read yet; filled by other threads. Those of one actor may come in
    another order than they happened in: a large block can be overtaken by a small answer."""

    def hire(self, actor: int, states: Arrays) -> None:
        """Start this actor once there is room for it; its first event is READY or LOST.

        ``states`` are those of its environments, in a resumed run.
        """

    def put(self, weights: bytes) -> object:
        """Store weights where every actor can fetch them; returns a reference for ``roll``."""

    def roll(self, actor: int, weights: object, version: int) -> None:
        """Ask for a block, acted with what ``put`` returned: a BLOCK, empty if it was abandoned."""

    def ask_state(self, actor: int, snapshot: int) -> None:
        """Ask for a STATE, an ``ActorState`` of that snapshot, after the blocks asked for so far."""

    def stop(self, actor: int) -> None:
        """Let the actor abandon its block at the next step, and begin no other."""

    def dismiss(self, actor: int) -> None:
        """Release a lost actor. If its process is still alive, kill it to free its resources."""

    def store(self) -> int:
        """Bytes that may wait between all actors and all learners together."""

    def room(self) -> int:
        """How many actors of all learners together the machines have room for."""
