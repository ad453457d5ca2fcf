"""Messages by calls: whoever can be called with bytes can be written to."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from exarl.comm.messages import ANY, Messages

Deliver = Callable[[int, int, bytes], object]
"""Put bytes of (rank, tag) into somebody's mailbox; returns at once."""


class Mailbox(Messages):
    """A rank's mailbox and the way to those of the others: ``others[rank](self.rank, tag, bytes)``.

    ``deliver`` may be called by another thread than the one that reads, and before ``others`` are
    known here, which is a list that may be filled later.
    """

    def __init__(self, rank: int, size: int, others: Sequence[Deliver]) -> None:
        self.rank, self.size = rank, size
        self._others = others
        self._lock = threading.Lock()
        self._letters: dict[tuple[int, int], deque[bytes]] = {}  # (tag, rank), in order of arrival

    def deliver(self, source: int, tag: int, payload: bytes) -> None:
        with self._lock:
            self._letters.setdefault((tag, source), deque()).append(payload)

    def send(self, payload: Any, dest: int | Iterable[int], tag: int) -> None:
        data = bytes(payload)
        for rank in [dest] if isinstance(dest, int) else dest:
            self._others[rank](self.rank, tag, data)

    def post(self, payload: Any, dest: int, tag: int) -> None:
        self.send(payload, dest, tag)

    def poll(self, source: int = ANY, tag: int = 0) -> tuple[int, np.ndarray] | None:
        with self._lock:
            for rank in range(self.size) if source == ANY else (source,):
                if letters := self._letters.get((tag, rank)):
                    return rank, np.frombuffer(letters.popleft(), np.uint8)
        return None
