"""The learner's books of actors that go on without waiting for each other."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence

from exarl.comm.wait import wait_for
from exarl.types import Arrays, Block
from exarl.workflows.base import Source, Tally
from exarl.workflows.pacing import Pacer

GRANT, SEND_STATE, STOP = range(3)
"""What a learner orders an actor to do."""


class PacedSource(Source):
    """Blocks that have come, by actor, and the answers to what actors were asked.

    A subclass says how orders go out and how blocks and answers come in.
    """

    def __init__(self, ranks: Sequence[int], pacer: Pacer) -> None:
        self._ranks = list(ranks)
        self._pacer = pacer
        self._inbox: dict[int, deque[Block]] = {rank: deque() for rank in ranks}
        self._received = dict.fromkeys(ranks, 0)
        self._record: dict[int, list[Block]] | None = None  # blocks of the snapshot under way
        self._dropped = dict.fromkeys(ranks, 0)
        self._answers: dict[int, tuple[int, Arrays]] = {}  # rank -> blocks sent by then, state

    @abstractmethod
    def _receive_blocks(self) -> None:
        """Call ``_arrived`` for each block that has come."""

    @abstractmethod
    def _receive_answers(self, order: int) -> None:
        """Call ``_answered`` for each answer to ``order`` that has come."""

    @abstractmethod
    def _order_all(self, order: int) -> None:
        """Tell every actor."""

    def take(self, version: int) -> Block | None:
        self._receive_blocks()
        rank = self._pacer.next(version)
        if rank is None:
            return None
        self._pacer.trained(rank)
        return self._inbox[rank].popleft()

    # A snapshot in the manner of Chandy and Lamport: each actor answers between two blocks, and the
    # blocks it had sent by then but that were not trained when we asked are part of the snapshot.

    def ask_states(self) -> None:
        self._record = {rank: list(self._inbox[rank]) for rank in self._ranks}
        self._answers = {}
        self._order_all(SEND_STATE)

    def states(self) -> tuple[Arrays, list[Block]] | None:
        assert self._record is not None
        self._receive_answers(SEND_STATE)
        if len(self._answers) < len(self._ranks):
            return None
        self._receive_blocks()
        if any(self._received[rank] < sent for rank, (sent, _) in self._answers.items()):
            return None
        under_way = []
        for rank, (sent, _) in self._answers.items():
            later = self._received[rank] - sent
            recorded = self._record[rank]
            under_way += recorded[: len(recorded) - later]
        self._record = None
        return self._joined(), under_way

    def stop(self, patience: float | None) -> tuple[Arrays, list[Block], Tally]:
        self._order_all(STOP)
        self._answers, self._record = {}, None
        deadline = None if patience is None else time.monotonic() + patience

        def all_here() -> bool | None:
            self._receive_answers(STOP)
            self._receive_blocks()
            sent = [self._received[rank] >= sent for rank, (sent, _) in self._answers.items()]
            late = deadline is not None and time.monotonic() > deadline
            return True if late or (len(sent) == len(self._ranks) and all(sent)) else None

        wait_for(all_here)
        left = [block for rank in self._ranks for block in self._inbox[rank]]
        dropped = sum(self._dropped.values())
        produced = sum(self._received.values()) + dropped
        tally = Tally(produced, dropped=dropped, missing=len(self._ranks) - len(self._answers))
        return self._joined(), left, tally

    def _arrived(self, rank: int, block: Block) -> None:
        self._inbox[rank].append(block)
        self._received[rank] += 1
        self._pacer.arrived(rank)
        if self._record is not None:
            self._record[rank].append(block)

    def _answered(self, rank: int, sent: int, dropped: int, state: Arrays) -> None:
        self._answers[rank] = (sent, state)
        self._dropped[rank] = dropped

    def _joined(self) -> Arrays:
        return {name: a for _, state in self._answers.values() for name, a in state.items()}
