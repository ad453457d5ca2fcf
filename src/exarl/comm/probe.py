"""Is one-sided progress real? Some MPI libraries need the target to call MPI before a get returns."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from exarl.comm.window import WORD, Window

BUSY_S = 0.2


def one_sided_latency(comm: Any, busy: float = BUSY_S) -> float:
    """Seconds that rank 0 needs to read a word of rank 1 while that rank computes for ``busy``
    seconds without calling MPI. Collective; the same result on every rank."""
    window = Window(comm, WORD)
    answer = np.zeros(1)
    if comm.rank == 0:
        window.get(1, 0)  # the first access may open a connection
    comm.Barrier()
    if comm.rank == 1:
        end = time.perf_counter() + busy
        while time.perf_counter() < end:
            pass
    elif comm.rank == 0:
        time.sleep(busy / 4)  # by now the target is certainly computing
        started = time.perf_counter()
        window.get(1, 0)
        answer[0] = time.perf_counter() - started
    comm.Barrier()
    comm.Bcast(answer, root=0)
    window.free()
    return float(answer[0])
