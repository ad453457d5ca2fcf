"""Messages between the processes of a run: what every way of sending bytes can do."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np

from exarl.comm.wait import wait_for

ANY = -1
GRANT, SEND_STATE, STOP = range(3)
"""What a learner asks of an actor: another block, its state, its last state."""


class Messages(ABC):
    """Bytes to and from others, by rank and tag; those of one rank and tag keep their order."""

    rank: int
    size: int

    @abstractmethod
    def send(self, payload: Any, dest: int | Iterable[int], tag: int) -> None:
        """Send the same bytes to one rank or to several; returns when the buffer is free again."""

    @abstractmethod
    def post(self, payload: Any, dest: int, tag: int) -> None:
        """Send without waiting; the payload is kept until it has gone, and must not change."""

    @abstractmethod
    def poll(self, source: int = ANY, tag: int = 0) -> tuple[int, np.ndarray] | None:
        """Like ``receive``, but None when nothing has come yet."""

    def receive(self, source: int = ANY, tag: int = 0) -> tuple[int, np.ndarray]:
        """The next message of ``tag`` and the rank it came from."""
        return wait_for(lambda: self.poll(source, tag))

    def close(self) -> None:  # noqa: B027 - where messages need no receiver there is nothing to do
        """Called by all ranks at the end: nothing that was sent still waits for a receiver."""

    def share(self, data: Any, tag: int) -> Any:
        """What rank 0 has as ``data``, plain enough for JSON, on every rank."""
        if self.rank:
            return unpack_json(self.receive(0, tag)[1])
        self.send(pack_json(data), range(1, self.size), tag)
        return data


def pack_json(data: Any) -> bytes:
    return json.dumps(data).encode()


def unpack_json(payload: np.ndarray) -> Any:
    return json.loads(payload.tobytes())
