"""Learner and actors, as they see each other."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from exarl.training.snapshot import Snapshot
from exarl.types import Arrays, Block


@dataclass(frozen=True)
class Tally:
    """What became of the blocks, for the books to balance."""

    produced: int = 0
    left: int = 0  # arrived or queued but never trained; kept in the checkpoint
    dropped: int = 0  # overwritten or abandoned
    redundant: int = 0  # reads of a block that somebody had read before
    missing: int = 0  # actors that did not answer in time

    def to_json(self) -> dict[str, int]:
        return dataclasses.asdict(self)

    def __add__(self, other: Tally) -> Tally:
        sums = {name: value + getattr(other, name) for name, value in self.to_json().items()}
        return Tally(**sums)


class Sink(Protocol):
    """The learner as an actor sees it."""

    def leave(self) -> int | None:
        """Wait for leave to act; the version of the weights now in the agent, or None: stop."""

    def stopped(self) -> bool:
        """Whether to give up the block in hand. Cheap enough to ask at every step."""

    def put(self, block: Block) -> None:
        """Hand over a block, without waiting for the learner unless its queue is full."""

    def close(self, state: Arrays, tally: Tally) -> None:
        """Say goodbye with the state of the environments."""


class Source(Protocol):
    """The actors as a learner sees them."""

    def publish(self, weights: Callable[[], np.ndarray], version: int, trained: int) -> None:
        """Offer new weights to the actors; ``trained`` blocks of all learners went into them."""

    def take(self, version: int) -> Block | None:
        """The block to train on next, if there is one now."""

    def ask_states(self) -> None:
        """Ask every actor for the state of its environments after its present block."""

    def states(self) -> Snapshot | None:
        """Once all have answered, or are overdue: the states, and the blocks that were under way
        when asked."""

    def stop(self, patience: float | None) -> tuple[Snapshot, Tally]:
        """Stop every actor; their last states, the blocks never trained, and the tally.

        Waits for actors to come to the end of a step, at most ``patience`` seconds (None: as long as
        for the states of a checkpoint).
        """


class Word(NamedTuple):
    """What is heard of an actor: one of the kinds below, with bytes or the reason of a loss."""

    kind: str
    actor: int
    payload: bytes = b""
    error: str = ""


READY, BLOCK, STATE, GOODBYE, LOST = "ready", "block", "state", "goodbye", "lost"


class Crew(Protocol):
    """Actors that are hired, may be lost, and are known by numbers that are never used again."""

    words: deque[Word]
    """What has been heard and not yet read; filled by other threads."""

    def hire(self, actor: int, states: Arrays) -> None:
        """Have this actor made, where there is room for it; its first word is READY or LOST.

        ``states`` are those of its environments, in a resumed run.
        """

    def put(self, weights: bytes) -> Any:
        """Weights where every actor can fetch them."""

    def roll(self, actor: int, weights: Any, version: int) -> None:
        """Ask for a block, acted with what ``put`` gave: a BLOCK, empty if it was given up."""

    def ask_state(self, actor: int, last: bool) -> None:
        """Ask for a STATE after the blocks asked for so far; GOODBYE if it is the last."""

    def stop(self, actor: int) -> None:
        """Let it give up its block at the next step, and begin no other."""

    def dismiss(self, actor: int) -> None:
        """Nothing more is wanted of one that is lost: one that raised may be alive, and where
        another could be."""

    def store(self) -> int:
        """Bytes that may wait between actors and learners, of all of them together."""

    def room(self) -> int:
        """How many actors the machines at hand have room for, all learners' together."""
