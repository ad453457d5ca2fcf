"""A bounded pool of slots in a window: queue, stack or buffer, for any number of ranks.

Each slot has one word that only atomic operations touch: sequence number, length and state together.
A producer claims an empty slot, fills it and marks it full; a consumer claims a full slot, copies it
and marks it empty. Whoever holds the claim is alone with the bytes, so a read is never torn, and no
lock is held while they move. Which full slot a consumer claims makes the difference: the oldest
(``queue``), the newest (``stack``), or the newest without emptying it (``buffer``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exarl.comm.window import WORD, Window

EMPTY, WRITING, FULL, READING, READ = range(5)
"""States of a slot; READ is full as well, and somebody has copied it (buffers keep what is read)."""

_STATE_BITS, _LENGTH_BITS = 3, 32
MAX_BYTES = (1 << _LENGTH_BITS) - 1


@dataclass(frozen=True)
class Item:
    """What came out of a pool: its number in the order of production, whether somebody had read it
    before, and the bytes."""

    sequence: int
    again: bool
    payload: np.ndarray


class SlotPool:
    """One pool in the memory of rank ``host``; every rank that uses it has an object of its own.

    ``alone`` promises that this object is the pool's only producer, which spares two atomics a push.
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
        self._structure = structure
        self._alone = alone
        self._sequence = 0
        self._counter = base  # the next sequence number
        self._lost = base + WORD  # items that gave way
        self._words = base + 2 * WORD
        self._data = self._words + slots * WORD
        self._stride = _aligned(slot_bytes)

    @staticmethod
    def size(slots: int, slot_bytes: int) -> int:
        """Bytes a pool needs in its host's window."""
        return (2 + slots) * WORD + slots * _aligned(slot_bytes)

    def push(self, payload: np.ndarray, *, overwrite: bool = False) -> bool:
        """Put bytes into a slot; False when all are taken.

        With ``overwrite`` (always for a buffer) the oldest full slot gives way, and is counted.
        """
        if len(payload) > self._bytes:
            raise ValueError(f"{len(payload)} bytes do not fit a slot of {self._bytes}")
        slot = self._claim_for_writing(overwrite or self._structure == "buffer")
        if slot is None:
            return False
        if self._alone:
            self._sequence += 1
        else:
            self._sequence = self._window.add(self._host, self._counter, 1) + 1
        self._window.write(self._host, self._data + slot * self._stride, payload)
        word = _word(self._sequence, len(payload), FULL)
        self._window.set(self._host, self._words + slot * WORD, word)
        return True

    def pop(self, after: int = 0) -> Item | None:
        """The next item, or None. A buffer's newest item is given again and again; ``after`` asks
        for one with a higher sequence number."""
        while True:
            words = self._window.words(self._host, self._words, self._slots).tolist()
            full = [
                (word, slot)
                for slot, word in enumerate(words)
                if _state(word) in (FULL, READ) and _sequence(word) > after
            ]
            if not full:
                if self._structure == "buffer" and any(
                    _state(word) == READING and _sequence(word) > after for word in words
                ):
                    continue  # another reader is copying it; that takes microseconds
                return None
            word, slot = min(full) if self._structure == "queue" else max(full)
            place = self._words + slot * WORD
            if self._window.swap_if(self._host, place, word, _with(word, READING)):
                start, length = self._data + slot * self._stride, _length(word)
                payload = self._window.read(self._host, start, length)
                after_it = READ if self._structure == "buffer" else EMPTY
                self._window.set(self._host, place, _with(word, after_it))
                return Item(_sequence(word), _state(word) == READ, payload)

    def filled(self) -> int:
        """How many items wait."""
        words = self._window.words(self._host, self._words, self._slots)
        return sum(_state(word) == FULL for word in words.tolist())

    def dropped(self) -> int:
        """How many items gave way to newer ones before anybody read them."""
        return self._window.get(self._host, self._lost)

    def _claim_for_writing(self, overwrite: bool) -> int | None:
        while True:
            words = self._window.words(self._host, self._words, self._slots).tolist()
            empty = [slot for slot, word in enumerate(words) if _state(word) == EMPTY]
            if empty and self._alone:
                return empty[0]  # nobody else takes an empty slot
            if not empty and not overwrite:
                return None
            full = [(w, slot) for slot, w in enumerate(words) if _state(w) in (FULL, READ)]
            if not empty and not full:
                continue  # every slot is being copied; that takes microseconds
            slot = empty[0] if empty else min(full)[1]
            word, place = words[slot], self._words + slot * WORD
            if self._window.swap_if(self._host, place, word, _with(word, WRITING)):
                if _state(word) == FULL:
                    self._window.add(self._host, self._lost, 1)
                return slot


def _word(sequence: int, length: int, state: int) -> int:
    return (sequence << _LENGTH_BITS | length) << _STATE_BITS | state


def _with(word: int, state: int) -> int:
    return word >> _STATE_BITS << _STATE_BITS | state


def _state(word: int) -> int:
    return word & (1 << _STATE_BITS) - 1


def _length(word: int) -> int:
    return word >> _STATE_BITS & MAX_BYTES


def _sequence(word: int) -> int:
    return word >> _STATE_BITS + _LENGTH_BITS


def _aligned(size: int) -> int:
    return -(-size // WORD) * WORD
