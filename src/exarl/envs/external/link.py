"""Whole messages over a socket or two pipes, with time limits."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable

from exarl.envs.external.protocol import HEADER, MAX_BYTES, ProtocolError, read_header

ADDRESS = "EXARL_ADDRESS"
"""The environment variable that tells a program where EXARL listens: ``unix:PATH`` or ``stdio``."""

_PIECE = 1 << 16


class Link:
    """Sends and receives messages over two file descriptors, which it owns.

    EOFError when the other side is gone, TimeoutError when it is too late, ProtocolError when what
    comes is no message or longer than ``max_bytes``; after any of them the link is of no use.
    """

    def __init__(self, reader: int, writer: int, max_bytes: int = MAX_BYTES) -> None:
        self._reader, self._writer, self._max_bytes = reader, writer, max_bytes
        self._poll_in, self._poll_out = select.poll(), select.poll()
        self._poll_in.register(reader, select.POLLIN)
        self._poll_out.register(writer, select.POLLOUT)
        self._buffer = b""
        for descriptor in {reader, writer}:
            os.set_blocking(descriptor, False)

    def fileno(self) -> int:
        """What becomes readable when a message comes."""
        return self._reader

    def send(self, data: bytes, timeout: float | None = None) -> None:
        """Send one message."""
        self._check_open()
        ready = _waiter(self._poll_out, timeout)
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._writer, left) :]
            except BlockingIOError:
                ready()
            except OSError as error:
                raise EOFError(error.strerror) from error

    def receive(self, timeout: float | None = None) -> bytes:
        """The next message."""
        self._check_open()
        ready = _waiter(self._poll_in, timeout)
        while len(self._buffer) < HEADER.size:
            self._buffer += self._read(_PIECE, ready)
        size = HEADER.size + read_header(self._buffer)[3]
        if size > self._max_bytes:
            raise ProtocolError(f"a message of {size} bytes, at most {self._max_bytes} are allowed")
        if len(self._buffer) < size:
            pieces, have = [self._buffer], len(self._buffer)
            while have < size:
                pieces.append(self._read(max(_PIECE, size - have), ready))
                have += len(pieces[-1])
            self._buffer = b"".join(pieces)
        message, self._buffer = self._buffer[:size], self._buffer[size:]
        return message

    def close(self) -> None:
        """Hang up; a second time does nothing."""
        for descriptor in {self._reader, self._writer} - {-1}:
            os.close(descriptor)
        self._reader = self._writer = -1

    def _check_open(self) -> None:
        if self._reader < 0:
            raise EOFError("the connection was closed")

    def _read(self, limit: int, ready: Callable[[], None]) -> bytes:
        while True:
            ready()
            try:
                data = os.read(self._reader, limit)
            except BlockingIOError:
                continue
            except OSError as error:
                raise EOFError(error.strerror) from error
            if not data:
                raise EOFError("the connection was closed")
            return data


def connect(address: str, max_bytes: int = MAX_BYTES) -> Link:
    """A program's side of the conversation that ``EXARL_ADDRESS`` names."""
    if address == "stdio":
        # What the program prints from now on goes where its errors go.
        link = Link(os.dup(0), os.dup(1), max_bytes)
        os.dup2(2, 1)
        return link
    scheme, _, path = address.partition(":")
    if scheme != "unix":
        raise ValueError(f"{ADDRESS} is 'stdio' or 'unix:PATH', not '{address}'")
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        peer.connect(path)
    except OSError:
        peer.close()
        raise
    descriptor = peer.detach()
    return Link(descriptor, descriptor, max_bytes)


def _waiter(poll: select.poll, timeout: float | None) -> Callable[[], None]:
    """Waits until the descriptor is ready; TimeoutError once ``timeout`` seconds are over."""
    deadline = None if timeout is None else time.monotonic() + timeout

    def wait() -> None:
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        if not poll.poll(left):
            raise TimeoutError(f"no answer within {timeout:g} s")

    return wait
