"""What every way of sending bytes between the processes of a run can do."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from exarl.comm.messages import Payload, decode, encode
from exarl.comm.waiting import wait_for

ANY = -1
T = TypeVar("T")


class Transport(ABC):
    """Bytes to and from other processes, by rank and tag; messages of one rank and tag keep their
    order."""

    rank: int
    size: int

    @abstractmethod
    def send(self, payload: Payload, dest: int | Iterable[int], tag: int) -> None:
        """Send the same bytes to one rank or to several; returns when the buffer is free again."""

    @abstractmethod
    def post(self, payload: Payload, dest: int, tag: int) -> None:
        """Send without waiting; the payload is kept until it has gone, and must not change."""

    @abstractmethod
    def poll(self, source: int = ANY, tag: int = 0) -> tuple[int, np.ndarray] | None:
        """Like ``receive``, but None when nothing has come yet."""

    def receive(self, source: int = ANY, tag: int = 0) -> tuple[int, np.ndarray]:
        """The next message of ``tag`` and the rank it came from."""
        return wait_for(lambda: self.poll(source, tag))

    def close(self) -> None:  # noqa: B027 - where messages need no receiver there is nothing to do
        """Called by all ranks at the end: nothing that was sent still waits for a receiver."""

    def share(self, data: T, tag: int) -> T:
        """The ``data`` of rank 0, which must be plain enough for JSON, on every rank."""
        if self.rank:
            shared: T = json.loads(decode(self.receive(0, tag)[1], str)[0])
            return shared
        self.send(encode(json.dumps(data)), range(1, self.size), tag)
        return data
