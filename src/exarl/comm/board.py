"""The newest weights, readable by everyone at any time: one writer, versioned, without locks."""

from __future__ import annotations

import numpy as np

from exarl.comm.window import WORD, Window

_COPIES = 4


class Board:
    """Vectors of one size in the memory of ``host``, the newest version on top.

    The writer goes round ``_COPIES`` places, invalidating each before it writes and naming it
    newest afterwards. A reader copies the newest and looks again whether it stayed valid; a copy is
    only lost when the writer has gone all the way round meanwhile.
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
        """Bytes a board needs in its host's window."""
        return (1 + _COPIES) * WORD + _COPIES * -(-4 * length // WORD) * WORD

    def write(self, weights: np.ndarray, version: int) -> None:
        """Publish ``weights`` as ``version``, which must be positive and grow. Host only."""
        place = version % _COPIES
        self._window.set(self._host, self._versions + place * WORD, -1)
        self._window.write(self._host, self._data + place * self._stride, weights.view(np.uint8))
        self._window.set(self._host, self._versions + place * WORD, version)
        self._window.set(self._host, self._newest, version)

    def version(self) -> int:
        """The newest version; 0 when nothing was published."""
        return self._window.get(self._host, self._newest)

    def read(self, newer_than: int = 0) -> tuple[np.ndarray, int] | None:
        """The newest weights and their version, if newer than asked."""
        while (version := self.version()) > newer_than:
            place = version % _COPIES
            payload = self._window.read(self._host, self._data + place * self._stride, self._bytes)
            if self._window.get(self._host, self._versions + place * WORD) == version:
                return payload.view(np.float32), version
        return None
