"""A pool of slots in one-sided memory, against lists: what comes out, in which order, what is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.windows import MemoryWindow

from exarl.comm.pool import MAX_BYTES, SlotPool

BASE = 24  # other things stand before the pool
BYTES = 11


def pools(structure: str, slots: int, *, alone: bool = False, count: int = 1) -> list[SlotPool]:
    """Views of one pool, in the memory of the second of two ranks."""
    window: Any = MemoryWindow(BASE + SlotPool.size(slots, BYTES), ranks=2)
    make = (window, 1, slots, BYTES, structure)
    return [SlotPool(*make, base=BASE, alone=alone) for _ in range(count)]


def payload(number: int) -> np.ndarray:
    """Bytes that tell which one they are, of lengths 0 to ``BYTES``."""
    return np.full(number % (BYTES + 1), number, np.uint8)


def taken(pool: SlotPool, after: int = 0) -> tuple[int, list[int]] | None:
    item = pool.pop(after)
    return None if item is None else (item.sequence, item.payload.tolist())


MOVES = st.lists(st.sampled_from(["push", "overwrite", "pop"]), max_size=40)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("structure", ["queue", "stack"])
@given(slots=st.integers(1, 5), moves=MOVES)
@settings(deadline=None, max_examples=60)
def test_items_come_out_as_from_a_list(
    structure: str, alone: bool, slots: int, moves: list[str]
) -> None:
    (pool,) = pools(structure, slots, alone=alone)
    model: list[int] = []
    lost = 0
    for number, move in enumerate(moves, 1):
        if move == "pop":
            expected = model.pop(0 if structure == "queue" else -1) if model else None
            found = taken(pool)
            assert (found and found[1]) == (expected and payload(expected).tolist())
        else:
            fits = len(model) < slots
            if move == "overwrite" and not fits:
                model.pop(0)
                lost += 1
                fits = True
            assert pool.push(payload(number), overwrite=move == "overwrite") is fits
            model += [number] if fits else []
        assert pool.filled() == len(model)
        assert pool.dropped() == pool.overwritten == lost


def test_numbers_follow_the_order_of_production() -> None:
    one, other = pools("queue", 4, count=2)
    for number, pool in enumerate((one, other, other, one), 1):
        assert pool.push(payload(number))
    assert not one.push(payload(9))
    found = [item for item in (taken(other) for _ in range(5)) if item is not None]
    assert [bytes_ for _, bytes_ in found] == [payload(n).tolist() for n in range(1, 5)]
    numbers = [number for number, _ in found]
    assert numbers == sorted(set(numbers)), "a claim that fails leaves a gap"


def test_two_consumers_get_every_item_once() -> None:
    producer, one, other = pools("queue", 6, count=3)
    for number in range(1, 7):
        producer.push(payload(number))
    found = [taken(pool) for pool in (one, other, one, one, other, one)]
    assert sorted(item[0] for item in found if item) == [1, 2, 3, 4, 5, 6]
    assert taken(one) is None
    assert taken(other) is None
    for number in range(7, 10):
        assert producer.push(payload(number))
    assert [item and item[0] for item in (taken(other), taken(one), taken(one))] == [7, 8, 9]


def test_a_buffer_gives_its_newest_again_and_says_so() -> None:
    (pool,) = pools("buffer", 2)
    assert pool.pop() is None
    pool.push(payload(5))
    pool.push(payload(6))
    first, second = pool.pop(), pool.pop()
    assert first is not None and second is not None
    assert (first.sequence, first.again) == (2, False)
    assert (second.sequence, second.again) == (2, True)
    assert second.payload.tolist() == payload(6).tolist()
    assert pool.pop(after=2) is None
    assert pool.pop(after=1) is not None
    pool.push(payload(7))  # the oldest gives way without being asked
    assert taken(pool, after=2) == (3, payload(7).tolist())
    assert pool.dropped() == 1, "item 1 had not been read"
    pool.push(payload(8))
    assert pool.dropped() == 1, "item 2 had been read"
    assert pool.overwritten == 1


def test_a_slot_has_its_bounds() -> None:
    (pool,) = pools("queue", 2)
    assert pool.push(np.arange(BYTES, dtype=np.uint8))
    with pytest.raises(ValueError, match="do not fit"):
        pool.push(np.zeros(BYTES + 1, np.uint8))
    assert taken(pool) == (1, list(range(BYTES)))
    window: Any = MemoryWindow(8)
    SlotPool(window, 0, 1, MAX_BYTES, "queue")
    with pytest.raises(ValueError, match="at most"):
        SlotPool(window, 0, 1, MAX_BYTES + 1, "queue")


def test_a_lone_producer_costs_fewer_accesses() -> None:
    for alone, most in ((True, 3), (False, 5)):
        window: Any = MemoryWindow(SlotPool.size(4, BYTES))
        pool = SlotPool(window, 0, 4, BYTES, "queue", alone=alone)
        pool.push(payload(1))
        assert window.accesses <= most
