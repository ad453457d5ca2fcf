"""An authenticated stream of frames between two processes: its bytes, without the connection itself.

Both ends prove that they know a key (HMAC-SHA256 of two random numbers) before anything is decoded; up
to then an end takes a fixed number of bytes. Every frame carries a checksum that only they can make,
over its place in the stream as well: nothing can be inserted, changed, repeated or left out. It is not
encrypted.

    who joins -> who listens   MAGIC, random number
    who listens -> who joins   random number, proof
    who joins -> who listens   proof
    then both ways             frames: length (uint64), tag (uint64), checksum, payload
"""

from __future__ import annotations

import hmac
import secrets
import struct
from collections.abc import Generator, Sequence
from typing import NamedTuple, cast

import numpy as np

from exarl.comm.messages import Payload

MAGIC = b"EXARL joins 1\r\n\0"
LONGEST = 1 << 32
"""Bytes that a frame may have."""
OTHER_KEY = "it has another key"
NOT_EXARL = "it does not speak this protocol"
_RANDOM = _PROOF = 32
_HEAD = struct.Struct("<QQ")
_COUNT = struct.Struct("<Q")


class WireError(Exception):
    """The other end does not know the key, or does not follow the protocol."""


class Frame(NamedTuple):
    """What one end has sent to the other."""

    tag: int
    payload: np.ndarray


class Wire:
    """One end. It is fed what comes in and gives what is to be sent; ``open`` when both have proved."""

    def __init__(self, key: bytes, *, listens: bool, longest: int = LONGEST) -> None:
        self.open = False
        self.greeting: list[bytes] = []
        """Bytes of the greeting that are to be sent; the sender empties the list."""
        self._key, self._listens, self._longest = key, listens, longest
        self._out, self._in = b"", b""
        self._sent = self._taken = 0
        self._frame: Frame | None = None
        self._steps = self._protocol()
        self.wanted = next(self._steps)
        """The number of bytes to feed next."""

    def feed(self, data: np.ndarray) -> Frame | None:
        """Take exactly ``wanted`` bytes, and return the frame that they complete, if any.

        WireError when the other end is not who it should be; nothing may be fed after that.
        """
        self._frame = None
        self.wanted = self._steps.send(data)
        return self._frame

    def seal(self, tag: int, buffers: Sequence[Payload]) -> list[memoryview]:
        """The parts of the next frame, to be sent in this order."""
        views = [memoryview(cast(bytes, buffer)) for buffer in buffers]  # arrays are buffers too
        parts = [view.cast("B") for view in views if view.nbytes]
        head = _HEAD.pack(sum(len(part) for part in parts), tag)
        self._sent += 1
        return [memoryview(head + _checksum(self._out, self._sent, head, parts)), *parts]

    def _protocol(self) -> Generator[int, np.ndarray, None]:
        yield from self._greet()
        self.open = True
        while True:
            data = bytes((yield _HEAD.size + _PROOF))
            head, proof = data[: _HEAD.size], data[_HEAD.size :]
            length, tag = _HEAD.unpack(head)
            if length > self._longest:
                raise WireError(f"a frame of {length} bytes; {self._longest} are allowed")
            payload = (yield length) if length else np.empty(0, np.uint8)
            self._taken += 1
            whole = [memoryview(cast(bytes, payload))]
            if not hmac.compare_digest(proof, _checksum(self._in, self._taken, head, whole)):
                raise WireError("a frame was changed on its way")
            self._frame = Frame(tag, payload)

    def _greet(self) -> Generator[int, np.ndarray, None]:
        own = secrets.token_bytes(_RANDOM)
        if self._listens:
            hello = bytes((yield len(MAGIC) + _RANDOM))
            if hello[: len(MAGIC)] != MAGIC:
                raise WireError(NOT_EXARL)
            both = hello[len(MAGIC) :] + own
            self.greeting.append(own + self._proof(b"listens", both))
            proof, expected = bytes((yield _PROOF)), self._proof(b"joins", both)
        else:
            self.greeting.append(MAGIC + own)
            answer = bytes((yield _RANDOM + _PROOF))
            both, proof = own + answer[:_RANDOM], answer[_RANDOM:]
            expected = self._proof(b"listens", both)
        if not hmac.compare_digest(proof, expected):
            raise WireError(OTHER_KEY)
        if not self._listens:
            self.greeting.append(self._proof(b"joins", both))
        keys = [self._proof(b"frames of who " + who, both) for who in (b"listens", b"joins")]
        self._out, self._in = keys if self._listens else reversed(keys)

    def _proof(self, who: bytes, both: bytes) -> bytes:
        return hmac.digest(self._key, who + b"\0" + both, "sha256")


def _checksum(key: bytes, count: int, head: bytes, parts: Sequence[memoryview]) -> bytes:
    found = hmac.new(key, _COUNT.pack(count) + head, "sha256")
    for part in parts:
        found.update(part)
    return found.digest()
