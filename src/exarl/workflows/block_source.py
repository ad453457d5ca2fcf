"""The learner's side of actors that go on without waiting for each other, whatever connects them."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence

from exarl.comm.messages import ActorState, Order, SendState, StopActing
from exarl.comm.pacer import Pacer
from exarl.comm.waiting import wait_for
from exarl.training.actors import BlockSource, Tally
from exarl.training.snapshot import SentBlock, Snapshot, SnapshotTracker
from exarl.types import Arrays, Block


class PacedSource(BlockSource):
    """Blocks that have come, by actor, and the answers to what actors were asked.

    A subclass sends the orders, and calls ``_arrived`` and ``_answered`` for what comes in.
    """

    def __init__(self, ranks: Sequence[int], pacer: Pacer, tracker: SnapshotTracker) -> None:
        self._ranks = list(ranks)
        self._pacer = pacer
        self._tracker = tracker
        self._inbox: dict[int, deque[SentBlock]] = {rank: deque() for rank in ranks}
        self._received = dict.fromkeys(ranks, 0)
        self._dropped = dict.fromkeys(ranks, 0)
        self._stopping = False

    @abstractmethod
    def _receive_blocks(self) -> None:
        """Call ``_arrived`` for each block that has come, in the order of their numbers."""

    @abstractmethod
    def _receive_answers(self) -> None:
        """Call ``_answered`` for each answer that has come."""

    @abstractmethod
    def _order_all(self, order: Order) -> None:
        """Send every actor an order. It answers a ``SendState`` unless a newer one has come since,
        and ``StopActing`` after everything else."""

    def take(self, version: int) -> Block | None:
        self._receive_blocks()
        rank = self._pacer.next(version)
        if rank is None:
            return None
        self._pacer.trained(rank)
        return self._inbox[rank].popleft().block

    def ask_states(self) -> None:
        number = self._tracker.begin(self._ranks, self._waiting())
        self._order_all(SendState(number))

    def states(self) -> Snapshot | None:
        self._receive_answers()
        if not self._tracker.settled():
            return None
        self._receive_blocks()
        return self._tracker.snapshot() if self._all_received() else None

    def stop(self, patience: float | None) -> tuple[Snapshot, Tally]:
        self._stopping = True
        self._tracker.begin_last()
        self._order_all(StopActing())
        deadline = time.monotonic() + (self._tracker.timeout if patience is None else patience)

        def all_here() -> bool | None:
            self._receive_answers()
            self._receive_blocks()
            complete = not self._silent() and self._all_received()
            return True if complete or time.monotonic() > deadline else None

        wait_for(all_here)
        dropped = sum(self._dropped.values())
        produced = sum(self._received.values()) + dropped
        silent = self._silent()
        left = [sent.block for sent in self._waiting()]
        tally = Tally(produced, dropped=dropped, missing=len(silent))
        return Snapshot(self._tracker.states(), left, silent), tally

    def _arrived(self, rank: int, block: Block) -> None:
        self._received[rank] += 1
        sent = SentBlock(rank, self._received[rank], block)
        self._inbox[rank].append(sent)
        self._pacer.arrived(rank)
        self._tracker.arrived(sent)

    def _answered(self, rank: int, answer: ActorState, state: Arrays) -> None:
        self._dropped[rank] = answer.dropped
        self._tracker.answered(rank, answer, state)

    def _waiting(self) -> list[SentBlock]:
        """Blocks that have come and are not trained, also those of actors that are lost."""
        return [sent for inbox in self._inbox.values() for sent in inbox]

    def _all_received(self) -> bool:
        """Whether the blocks that actors had sent before they answered have all come."""
        return all(self._received[r] >= a.sent for r, a in self._tracker.answers.items())

    def _silent(self) -> list[int]:
        return [rank for rank in self._ranks if rank not in self._tracker.answers]
