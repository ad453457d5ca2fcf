"""What one rank does in ``test_one_sided.py``: ``mpiexec -n N python one_sided.py BODY FOLDER``."""

from __future__ import annotations

import json
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from exarl.comm.board import Board
from exarl.comm.channel import Channel
from exarl.comm.pool import SlotPool
from exarl.comm.probe import near_and_far, one_sided_latency
from exarl.comm.waiting import wait_for
from exarl.comm.window import Window

WORLD = MPI.COMM_WORLD
SLOT = 20_000
ITEMS = 300


def item(producer: int, number: int) -> np.ndarray:
    """Random bytes of random length behind producer, number and their checksum."""
    rng = np.random.default_rng((producer, number))
    body = rng.integers(0, 256, int(rng.integers(0, SLOT - 24)), np.uint8)
    head = np.array([producer, number, zlib.crc32(body.tobytes())], np.int64)
    return np.concatenate([head.view(np.uint8), body])


def check(payload: np.ndarray) -> tuple[int, int]:
    producer, number, checksum = payload[:24].view(np.int64).tolist()
    assert zlib.crc32(payload[24:].tobytes()) == checksum, "a torn read"
    return producer, number


def pools(structure: str, host: int, producers: list[int], overwrite: bool) -> dict[str, Any]:
    """Some ranks push as fast as they can, the others pop; nothing is torn, lost or doubled."""
    window = Window(WORLD, SlotPool.size(4, SLOT) + 8)
    alone = len(producers) == 1 and producers[0] == WORLD.rank
    pool = SlotPool(window, host, 4, SLOT, structure, alone=alone)
    done = SlotPool.size(4, SLOT)  # how many producers are through
    seen: list[tuple[int, int]] = []
    if WORLD.rank in producers:
        for number in range(ITEMS):
            payload = item(WORLD.rank, number)
            wait_for(lambda p=payload: True if pool.push(p, overwrite=overwrite) else None)
        window.add(0, done, 1)
    else:
        latest = 0
        while True:
            finished = window.get(0, done) == len(producers)
            found = pool.pop(latest if structure == "buffer" else 0)
            if found is not None:
                seen.append(check(found.payload))
                latest = found.sequence
            elif finished:
                break
    everything = WORLD.allgather(seen)
    dropped = pool.dropped()
    WORLD.Barrier()
    window.free()
    return {"seen": [pair for part in everything for pair in part], "mine": seen, "drop": dropped}


def queue_far() -> dict[str, Any]:
    return pools("queue", WORLD.size - 1, [WORLD.size - 1], overwrite=False)


def queue_many() -> dict[str, Any]:
    return pools("queue", 0, list(range(1, WORLD.size)), overwrite=False)


def queue_consumers() -> dict[str, Any]:
    return pools("queue", 0, [0], overwrite=False)


def stack() -> dict[str, Any]:
    return pools("stack", 0, [0], overwrite=False)


def overwriting() -> dict[str, Any]:
    return pools("queue", 0, [0], overwrite=True)


def buffer() -> dict[str, Any]:
    return pools("buffer", 0, [0], overwrite=True)


def board() -> dict[str, Any]:
    """Rank 0 publishes without pause; every copy anybody gets is of one version, and they grow."""
    length = 5_000
    window = Window(WORLD, Board.size(length))
    shown = Board(window, 0, length)
    reads = last = 0
    if WORLD.rank == 0:
        for version in range(1, 2_001):
            shown.write(np.full(length, version, np.float32), version)
    else:
        while last < 2_000:
            found = shown.read(last)
            if found is not None:
                weights, version = found
                assert version > last
                assert (weights == version).all(), "a torn read"
                last, reads = version, reads + 1
    WORLD.Barrier()
    window.free()
    return {"reads": reads, "last": last}


def probe() -> dict[str, Any]:
    """Rank 0 says of which ranks it reads."""
    targets = near_and_far(range(1, WORLD.size), [0, 1]) if WORLD.rank == 0 else []
    return {"latency": one_sided_latency(Channel(WORLD), range(WORLD.size), targets)}


def words() -> dict[str, Any]:
    """Words that everyone changes at once, each in one way."""
    window = Window(WORLD, 24)
    swapped = 0
    for number in range(200):
        window.add(0, 0, 1)
        window.set(0, 8, 1000 * WORLD.rank + number)
        swapped += window.swap_if(0, 16, seen := window.get(0, 16), seen + 1)
    WORLD.Barrier()
    count, last, swaps = window.words(0, 0, 3).tolist()
    WORLD.Barrier()
    window.free()
    return {"count": count, "last": last % 1000, "lost": swaps - WORLD.allreduce(swapped)}


def long_lived() -> dict[str, Any]:
    """A pool in which more items have been than fit into 28 bits of a number."""
    window = Window(WORLD, SlotPool.size(4, SLOT))
    pool = SlotPool(window, 0, 4, SLOT, "queue")
    window.set(0, 0, 2**40 - 3)
    seen = []
    for number in range(10):
        pool.push(item(0, number))
        found = pool.pop()
        assert found is not None
        seen.append([*check(found.payload), found.sequence - 2**40])
    window.free()
    return {"seen": seen}


if __name__ == "__main__":
    found = globals()[sys.argv[1]]()
    (Path(sys.argv[2]) / f"{WORLD.rank}.json").write_text(json.dumps(found))
    time.sleep(0)
