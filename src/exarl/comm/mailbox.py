"""Messages by function calls, for processes that can call each other with bytes (Ray)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from exarl.comm.messages import Payload
from exarl.comm.transport import ANY, Transport

Deliver = Callable[[int, int, bytes], object]
"""Put bytes of (rank, tag) into a mailbox; returns at once."""


class Mailbox(Transport):
    """A rank's mailbox; ``others[rank](self.rank, tag, bytes)`` delivers to that of another rank.

    ``deliver`` may be called by any thread, and before the list ``others`` is filled.
    """

    def __init__(self, rank: int, size: int, others: Sequence[Deliver]) -> None:
        self.rank, self.size = rank, size
        self._others = others
        self._lock = threading.Lock()
        self._waiting: dict[tuple[int, int], deque[bytes]] = {}  # (tag, rank), in order of arrival

    def deliver(self, source: int, tag: int, payload: bytes) -> None:
        with self._lock:
            self._waiting.setdefault((tag, source), deque()).append(payload)

    def send(self, payload: Payload, dest: int | Iterable[int], tag: int) -> None:
        data = bytes(payload)
        for rank in [dest] if isinstance(dest, int) else dest:
            self._others[rank](self.rank, tag, data)

    def post(self, payload: Payload, dest: int, tag: int) -> None:
        self.send(payload, dest, tag)

    def poll(self, source: int = ANY, tag: int = 0) -> tuple[int, np.ndarray] | None:
        with self._lock:
            for rank in range(self.size) if source == ANY else (source,):
                if payloads := self._waiting.get((tag, rank)):
                    return rank, np.frombuffer(payloads.popleft(), np.uint8)
        return None
