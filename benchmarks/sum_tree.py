"""Microseconds to sample and update prioritised replay: 1,000,000 items, batches of 256.

python benchmarks/sum_tree.py [ITEMS [BATCH]]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from exarl.replay import PrioritisedReplay
from exarl.replay.sumtree import SumTree

REPEATS = 2000


def microseconds(call: Callable[[], object]) -> float:
    """The median of many calls."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times)) * 1e6


def main(items: int = 1_000_000, batch: int = 256) -> None:
    rng = np.random.default_rng(0)
    tree = SumTree(items)
    tree.set(np.arange(items), rng.random(items))
    values = rng.random(batch)
    draw = microseconds(lambda: tree.find(rng.random(batch) * tree.total))
    update = microseconds(lambda: tree.set(rng.integers(items, size=batch), values))
    print(
        f"sum tree            sample {draw:6.1f}  update {update:6.1f}  both {draw + update:6.1f} us"
    )
    replay = PrioritisedReplay(items)
    replay.add({"row": np.zeros(items, np.float32)})
    draw = microseconds(lambda: replay.sample(rng, batch))
    update = microseconds(lambda: replay.update(rng.integers(items, size=batch), values))
    print(
        f"prioritised replay  sample {draw:6.1f}  update {update:6.1f}  both {draw + update:6.1f} us"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
