"""How much a slot pool costs over the bare one-sided access, and what pickled messages cost.

    mpiexec -n 2 python benchmarks/queue_speed.py [--kib 64] [--rounds 30] [--times 100]

Rank 0 pushes into and pops from a pool (queue of 4 slots) in the memory of rank 1, which sleeps. Bare:
one MPI Put and flush, one Get and flush, of the same bytes, going round four places like the pool.
``alone``: the pool's only producer pushes, as each actor does into its own (location distributed).
Pickled: ``comm.send`` and ``comm.recv`` of a dict of five arrays of the same size together (what a user
would pickle of a block: observations, actions, rewards, two flags), half of a round trip. Rounds of
the three are interleaved; medians over the rounds of the mean time in each, with the quartiles.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from exarl.comm.channel import meet
from exarl.comm.pool import SlotPool
from exarl.comm.window import Window

WORLD = MPI.COMM_WORLD
SLOTS = 4


def block_of(size: int) -> dict[str, np.ndarray]:
    """A dict of arrays of about ``size`` bytes: steps of 4 float32 seen, an action, a reward, flags."""
    steps = size // 30
    return {
        "observations": np.zeros((steps, 4), np.float32),
        "actions": np.zeros(steps, np.int64),
        "rewards": np.zeros(steps, np.float32),
        "terminated": np.zeros(steps, bool),
        "truncated": np.zeros(steps, bool),
    }


def each(action: Callable[[], object], times: int) -> float:
    """Mean seconds of an action."""
    started = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - started) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--times", type=int, default=100, help="accesses a round")
    options = parser.parse_args()
    size, times = options.kib * 1024, options.times
    room = SlotPool.size(SLOTS, size)
    shared = Window(WORLD, 2 * room)
    many = SlotPool(shared, 1, SLOTS, size, "queue")
    alone = SlotPool(shared, 1, SLOTS, size, "queue", base=room, alone=True)
    bare = MPI.Win.Allocate(SLOTS * size, 1, MPI.INFO_NULL, WORLD)
    bare.Lock_all(MPI.MODE_NOCHECK)
    payload, target = np.zeros(size, np.uint8), np.empty(size, np.uint8)
    block = block_of(size)
    found: dict[str, list[float]] = {}

    places = itertools.cycle([(slot * size, size, MPI.BYTE) for slot in range(SLOTS)])

    def put() -> None:
        bare.Put((payload, size, MPI.BYTE), 1, next(places))
        bare.Flush(1)

    def get() -> None:
        bare.Get((target, size, MPI.BYTE), 1, next(places))
        bare.Flush(1)

    def there_and_back() -> None:
        if WORLD.rank == 0:
            WORLD.send(block, 1)
            WORLD.recv(source=1)
        else:
            WORLD.recv(source=0)
            WORLD.send(block, 0)

    def filled_and_emptied(pool: SlotPool) -> tuple[float, float]:
        pushing = popping = 0.0
        for _ in range(times // SLOTS):
            pushing += each(lambda: pool.push(payload), SLOTS)
            popping += each(pool.pop, SLOTS)
        return pushing / (times // SLOTS), popping / (times // SLOTS)

    for warm in (True, *[False] * options.rounds):
        seconds = {}
        if WORLD.rank == 0:
            seconds["put"], seconds["get"] = each(put, times), each(get, times)
            seconds["push"], seconds["pop"] = filled_and_emptied(many)
            seconds["push, alone"], _ = filled_and_emptied(alone)
        meet(WORLD)
        seconds["pickled send and recv"] = each(there_and_back, times) / 2
        meet(WORLD)
        if not warm:
            for name, value in seconds.items():
                found.setdefault(name, []).append(value)
    bare.Unlock_all()
    bare.Free()
    shared.free()
    if WORLD.rank == 0:
        table(found, options.kib)


def table(found: dict[str, list[float]], kib: int) -> None:
    middle = {name: statistics.median(values) for name, values in found.items()}
    print(f"{kib} KiB                   median us  quartiles      over the bare access")
    for name, values in found.items():
        low, _, high = statistics.quantiles(values)
        bare = {"push": "put", "push, alone": "put", "pop": "get"}.get(name)
        ratio = f"x{middle[name] / middle[bare]:.2f}" if bare else ""
        print(
            f"{name:24s}  {middle[name] * 1e6:9.1f}  {low * 1e6:.1f}-{high * 1e6:.1f}".ljust(52)
            + ratio
        )
    through = middle["push"] + middle["pop"]
    pickled = middle["pickled send and recv"]
    print(f"pickled send and recv / (push and pop): x{pickled / through:.2f}")


if __name__ == "__main__":
    main()
