"""A bounded pool of slots in a window: queue, stack or buffer, for any number of ranks.

Each slot has one word that only atomic operations touch: sequence number, length and state together.
A producer claims an empty slot, fills it and marks it full. A consumer copies a full slot and then
marks it empty, provided that its word is still the same; since no two items have the same number, no
other rank has then taken or overwritten it meanwhile, so a read is never torn and an item is returned
once. No lock is held while bytes move. The structures differ in which full slot a consumer takes: the
oldest (``queue``), the newest (``stack``), or the newest without emptying it (``buffer``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exarl.comm.window import WORD, Window

EMPTY, WRITING, FULL, READ = range(4)
"""States of a slot; READ is full as well, and has been copied (buffers keep what is read)."""

_STATE_BITS = 3
_STATE = (1 << _STATE_BITS) - 1
MAX_BYTES = (1 << 32) - 1
"""The largest slot. Length and state take as many bits of a word as they need and the sequence number
the rest, which suffices for 2**59 bytes of full slots: years at memory speed."""


@dataclass(frozen=True)
class Item:
    """An item of a pool: its number in the order of production, whether it had been read before, and
    its bytes."""

    sequence: int
    again: bool
    payload: np.ndarray


class SlotPool:
    """One pool in the memory of rank ``host``; every rank that uses it has an object of its own.

    ``alone`` promises that this object is the pool's only producer, which saves two atomic operations
    per push.
    """

    def __init__(
        self,
        window: Window,
        host: int,
        slots: int,
        slot_bytes: int,
        structure: str,
        *,
        base: int = 0,
        alone: bool = False,
    ) -> None:
        if slot_bytes > MAX_BYTES:
            raise ValueError(f"a slot holds at most {MAX_BYTES} bytes, not {slot_bytes}")
        self._window = window
        self._host = host
        self._slots = slots
        self._bytes = slot_bytes
        self._shift = _STATE_BITS + slot_bytes.bit_length()  # where a word's sequence number begins
        self._structure = structure
        self._alone = alone
        self._sequence = 0
        self.overwritten = 0  # unread items that this object has overwritten
        self._empty: list[tuple[int, int]] = []  # word and number of slots, from the last look
        self._waiting: list[tuple[int, int]] = []  # the same of a queue's full ones, oldest last
        self._counter = base  # the next sequence number
        self._lost = base + WORD  # items overwritten before they were read
        self._words = base + 2 * WORD
        self._data = self._words + slots * WORD
        self._stride = _aligned(slot_bytes)

    @staticmethod
    def size(slots: int, slot_bytes: int) -> int:
        """Bytes that a pool needs in its host's window."""
        return (2 + slots) * WORD + slots * _aligned(slot_bytes)

    def push(self, payload: np.ndarray, *, overwrite: bool = False) -> bool:
        """Put bytes into a slot; False if all are taken.

        With ``overwrite`` (always for a buffer) the oldest full slot is overwritten, and counted.
        """
        if len(payload) > self._bytes:
            raise ValueError(f"{len(payload)} bytes do not fit a slot of {self._bytes}")
        found = self._claim_for_writing(overwrite or self._structure == "buffer")
        if found is None:
            return False
        claimed, slot = found
        self._window.write(self._host, self._data + slot * self._stride, payload)
        word = self._sequence << self._shift | len(payload) << _STATE_BITS | FULL
        # No other rank changes the word of a claimed slot. A swap, since words are only ever swapped.
        self._window.swap_if(self._host, self._words + slot * WORD, claimed, word)
        return True

    def pop(self, after: int = 0) -> Item | None:
        """The next item with a sequence number above ``after``, or None. A buffer returns its newest
        item each time."""
        while (found := self._next_full(after)) is not None:
            word, slot = found
            start = self._data + slot * self._stride
            payload = self._window.read(self._host, start, self._length_of(word))
            after_it = READ if self._structure == "buffer" else EMPTY
            place = self._words + slot * WORD
            if self._window.swap_if(self._host, place, word, _with(word, after_it)):
                return Item(self._sequence_of(word), word & _STATE == READ, payload)
            self._waiting.clear()  # another rank takes from this pool: look again before copying more
        return None

    def filled(self) -> int:
        """How many items have not been read."""
        words = self._window.words(self._host, self._words, self._slots)
        return sum(word & _STATE == FULL for word in words.tolist())

    def dropped(self) -> int:
        """How many items were overwritten before they were read."""
        return self._window.get(self._host, self._lost)

    def _scan(self) -> list[tuple[int, int]]:
        """Every slot's word and number."""
        words = self._window.words(self._host, self._words, self._slots).tolist()
        return [(word, slot) for slot, word in enumerate(words)]

    def _next_full(self, after: int) -> tuple[int, int] | None:
        # What a queue held at the last look still comes before anything pushed since.
        if self._waiting:
            return self._waiting.pop()
        full = [
            (word, slot)
            for word, slot in self._scan()
            if word & _STATE >= FULL and self._sequence_of(word) > after
        ]
        if self._structure != "queue":
            return max(full, default=None)
        self._waiting = sorted(full, reverse=True)
        return self._waiting.pop() if full else None

    def _length_of(self, word: int) -> int:
        return (word & (1 << self._shift) - 1) >> _STATE_BITS

    def _sequence_of(self, word: int) -> int:
        return word >> self._shift

    def _claim_for_writing(self, overwrite: bool) -> tuple[int, int] | None:
        """Claim a slot and a new sequence number; returns the slot's word and number."""
        while True:
            full: list[tuple[int, int]] = []
            if not self._empty:
                seen = self._scan()
                self._empty = [pair for pair in seen if pair[0] & _STATE == EMPTY]
                full = [pair for pair in seen if pair[0] & _STATE >= FULL]
            if self._empty and self._alone:
                self._sequence += 1
                return self._empty.pop()  # no other producer takes an empty slot
            if not self._empty and not overwrite:
                return None
            if not self._empty and not full:
                continue  # every slot is being filled; that takes microseconds
            word, slot = self._empty.pop() if self._empty else min(full)
            if self._claimed(self._words + slot * WORD, word):
                if word & _STATE == FULL:
                    self.overwritten += 1
                    self._window.add(self._host, self._lost, 1)
                return _with(word, WRITING), slot
            self._empty.clear()

    def _claimed(self, place: int, word: int) -> bool:
        writing = _with(word, WRITING)
        if self._alone:
            self._sequence += 1
            return self._window.swap_if(self._host, place, word, writing)
        before = self._window.swap_and_count(self._host, place, word, writing, self._counter)
        if before is not None:
            self._sequence = before + 1
        return before is not None


def _with(word: int, state: int) -> int:
    return word >> _STATE_BITS << _STATE_BITS | state


def _aligned(size: int) -> int:
    return -(-size // WORD) * WORD
