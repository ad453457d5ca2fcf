"""The learner's books of actors that go on without waiting for each other."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence

from exarl.comm.messages import SEND_STATE, STOP
from exarl.comm.wait import wait_for
from exarl.training.actors import Source, Tally
from exarl.training.snapshot import Snapshot, StateBook
from exarl.types import Arrays, Block
from exarl.workflows.pacer import Pacer

"""What a learner orders an actor to do."""


class PacedSource(Source):
    """Blocks that have come, by actor, and the answers to what actors were asked.

    A subclass says how orders go out and how blocks and answers come in.
    """

    def __init__(self, ranks: Sequence[int], pacer: Pacer, book: StateBook) -> None:
        self._ranks = list(ranks)
        self._pacer = pacer
        self._book = book
        self._inbox: dict[int, deque[Block]] = {rank: deque() for rank in ranks}
        self._received = dict.fromkeys(ranks, 0)
        self._record: dict[int, list[Block]] | None = None  # blocks of the snapshot under way
        self._dropped = dict.fromkeys(ranks, 0)
        self._asked = dict.fromkeys(ranks, 0)  # states asked for that have not come
        self._sent: dict[int, int] = {}  # blocks that an actor had sent when it answered
        self._stopping = False

    @abstractmethod
    def _receive_blocks(self) -> None:
        """Call ``_arrived`` for each block that has come."""

    @abstractmethod
    def _receive_answers(self) -> None:
        """Call ``_answered`` for each answer that has come."""

    @abstractmethod
    def _order_all(self, order: int) -> None:
        """Tell every actor. It answers each SEND_STATE once, in turn, and at last STOP."""

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
        self._sent = {}
        self._book.ask(self._ranks)
        for rank in self._ranks:
            self._asked[rank] += 1
        self._order_all(SEND_STATE)

    def states(self) -> Snapshot | None:
        assert self._record is not None
        self._receive_answers()
        if not self._book.settled():
            return None
        self._receive_blocks()
        if any(self._received[rank] < sent for rank, sent in self._sent.items()):
            return None
        under_way = []
        for rank in self._ranks:
            recorded = self._record[rank]
            # A silent actor's state is an older one, and all that has come of it since is kept.
            later = self._received[rank] - self._sent.get(rank, self._received[rank])
            under_way += recorded[: len(recorded) - later]
        self._record = None
        return Snapshot(self._envs(), under_way, self._book.silent())

    def stop(self, patience: float | None) -> tuple[Snapshot, Tally]:
        self._stopping = True
        self._sent, self._record = {}, None
        self._order_all(STOP)
        deadline = time.monotonic() + (self._book.timeout if patience is None else patience)

        def all_here() -> bool | None:
            self._receive_answers()
            self._receive_blocks()
            sent = [self._received[rank] >= sent for rank, sent in self._sent.items()]
            late = time.monotonic() > deadline
            return True if late or (len(sent) == len(self._ranks) and all(sent)) else None

        wait_for(all_here)
        left = [block for rank in self._ranks for block in self._inbox[rank]]
        dropped = sum(self._dropped.values())
        produced = sum(self._received.values()) + dropped
        silent = [rank for rank in self._ranks if rank not in self._sent]
        tally = Tally(produced, dropped=dropped, missing=len(silent))
        return Snapshot(self._envs(), left, silent), tally

    def _arrived(self, rank: int, block: Block) -> None:
        self._inbox[rank].append(block)
        self._received[rank] += 1
        self._pacer.arrived(rank)
        self._book.saw(block)
        if self._record is not None:
            self._record[rank].append(block)

    def _answered(self, rank: int, order: int, sent: int, dropped: int, state: Arrays) -> None:
        self._dropped[rank] = dropped
        self._asked[rank] -= order == SEND_STATE
        # Asked again, it has answered for a checkpoint that went on without it.
        owes = order == SEND_STATE and self._asked[rank] > 0
        self._book.told(rank, state, owes=owes)
        if not owes and (order == STOP) == self._stopping:
            self._sent[rank] = sent

    def _envs(self) -> Arrays:
        return self._book.joined()
