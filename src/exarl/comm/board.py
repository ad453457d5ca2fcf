"""The newest weights, readable by every rank at any time: one writer, versioned, without locks."""

from __future__ import annotations

import numpy as np

from exarl.comm.window import WORD, Window

_COPIES = 4


class Board:
    """Versions of a vector in the memory of ``host``.

    The writer goes round ``_COPIES`` places: it invalidates a place, writes there, and then names it
    the newest. A reader copies the newest and checks that it is still valid; it has to start again
    only if the writer has gone all the way round meanwhile.
    """

    def __init__(self, window: Window, host: int, length: int, base: int = 0) -> None:
        self._window = window
        self._host = host
        self._bytes = 4 * length
        self._newest = base  # version of the newest
        self._versions = base + WORD
        self._data = self._versions + _COPIES * WORD
        self._stride = -(-self._bytes // WORD) * WORD

    @staticmethod
    def size(length: int) -> int:
        """Bytes that a board needs in its host's window."""
        return (1 + _COPIES) * WORD + _COPIES * -(-4 * length // WORD) * WORD

    def write(self, weights: np.ndarray, version: int) -> None:
        """Publish ``weights`` as ``version``, which must be positive and increase. Host only."""
        place = version % _COPIES
        self._window.set(self._host, self._versions + place * WORD, -1)
        self._window.write(self._host, self._data + place * self._stride, weights.view(np.uint8))
        self._window.set(self._host, self._versions + place * WORD, version)
        self._window.set(self._host, self._newest, version)

    def version(self) -> int:
        """The newest version; 0 if nothing has been published."""
        return self._window.get(self._host, self._newest)

    def read(self, newer_than: int = 0) -> tuple[np.ndarray, int] | None:
        """The newest weights and their version; None if that is not ``newer_than``."""
        while (version := self.version()) > newer_than:
            place = version % _COPIES
            payload = self._window.read(self._host, self._data + place * self._stride, self._bytes)
            if self._window.get(self._host, self._versions + place * WORD) == version:
                return payload.view(np.float32), version
        return None
