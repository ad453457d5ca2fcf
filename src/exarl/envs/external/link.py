"""Whole messages over a socket or two pipes, with time limits."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable

from exarl.envs.external.protocol import HEADER, MAX_BYTES, ProtocolError, read_header

ADDRESS = "EXARL_ADDRESS"
"""The environment variable with a program's connection to EXARL: ``unix:PATH``, ``stdio``, or
``fd:NUMBER`` for a socket that the program inherits."""

_SHORT, _PIECE = 1 << 12, 1 << 16  # bytes to read at once, of the beginning and of the rest
_EMPTY = bytes(8)  # the length of a message that is nothing but its header
_LOOK_EVERY_S = 1.0  # at whether the other side still exists, while waiting for it
_ONE_SECOND = struct.pack("ll", 1, 0)  # of the system's struct timeval


class Link:
    """Sends and receives messages over two file descriptors, which it owns.

    EOFError when the other side is gone, TimeoutError when it is too late, ProtocolError when what
    arrives is no message or longer than ``max_bytes``; after any of them the link is of no use.
    ``alive``, if given, is asked every second while nothing arrives: a program may end while another
    process still holds its socket. A link that is ``blocking`` takes no time limits, and saves a call
    of the system for each message.
    """

    def __init__(
        self,
        reader: int,
        writer: int,
        max_bytes: int = MAX_BYTES,
        *,
        alive: Callable[[], bool] | None = None,
        blocking: bool = False,
    ) -> None:
        self._reader, self._writer, self._max_bytes = reader, writer, max_bytes
        self._alive, self._blocking = alive, blocking
        self._poll_in, self._poll_out = select.poll(), select.poll()
        self._poll_in.register(reader, select.POLLIN)
        self._poll_out.register(writer, select.POLLOUT)
        self._buffer = b""
        self._peer = socket.socket(fileno=reader) if reader == writer else None
        for descriptor in {reader, writer}:
            os.set_blocking(descriptor, blocking or self._peer is not None)
        if self._peer is not None and not blocking:
            # A read that itself waits for a second saves a call of ``poll`` for each message.
            self._peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _ONE_SECOND)

    def fileno(self) -> int:
        """What becomes readable when a message arrives."""
        return self._reader

    def send(self, data: bytes, timeout: float | None = None) -> None:
        """Send one message."""
        if self._writer < 0:
            raise EOFError("the connection was closed")
        deadline = None if timeout is None else time.monotonic() + timeout
        left: bytes | memoryview = data
        while True:
            try:
                if self._peer is not None and not self._blocking:
                    sent = self._peer.send(left, socket.MSG_DONTWAIT)
                else:
                    sent = os.write(self._writer, left)
                if sent == len(left):
                    return
                left = memoryview(left)[sent:]
            except BlockingIOError:
                self._wait(self._poll_out, timeout, deadline)
            except OSError as error:
                raise EOFError(error.strerror) from error

    def receive(self, timeout: float | None = None) -> bytes:
        """The next message."""
        deadline = None if timeout is None else time.monotonic() + timeout
        buffer = self._buffer or self._read(_SHORT, timeout, deadline)
        while len(buffer) < HEADER.size:
            buffer += self._read(_SHORT, timeout, deadline)
        if len(buffer) == HEADER.size and buffer.endswith(_EMPTY):
            self._buffer = b""
            return buffer
        size = HEADER.size + read_header(buffer)[3]
        if size > self._max_bytes:
            raise ProtocolError(f"a message of {size} bytes, at most {self._max_bytes} are allowed")
        if len(buffer) == size:
            self._buffer = b""
            return buffer
        if len(buffer) < size:
            pieces, have = [buffer], len(buffer)
            while have < size:
                pieces.append(self._read(max(_PIECE, size - have), timeout, deadline))
                have += len(pieces[-1])
            buffer = b"".join(pieces)
        self._buffer = buffer[size:]
        return buffer[:size]

    def finish(self) -> None:
        """Send nothing more: the other side reads the end of the stream, and may still answer."""
        if self._peer is not None:
            with contextlib.suppress(OSError):  # closed already, by either side
                self._peer.shutdown(socket.SHUT_WR)
        elif self._writer >= 0:
            os.close(self._writer)
        self._writer = -1

    def close(self) -> None:
        """Hang up; a second time does nothing."""
        if self._peer is not None:
            self._peer.close()
        else:
            for descriptor in {self._reader, self._writer} - {-1}:
                os.close(descriptor)
        self._reader = self._writer = -1

    def _read(self, limit: int, timeout: float | None, deadline: float | None) -> bytes:
        if self._reader < 0:
            raise EOFError("the connection was closed")
        waits = self._blocking or (self._peer is not None and (timeout is None or timeout >= 1))
        while True:
            if not waits:
                self._wait(self._poll_in, timeout, deadline)
            try:
                data = os.read(self._reader, limit)
            except BlockingIOError:
                waits = False
                continue
            except OSError as error:
                raise EOFError(error.strerror) from error
            if not data:
                raise EOFError("the connection was closed")
            return data

    def _wait(self, poll: select.poll, timeout: float | None, deadline: float | None) -> None:
        """Wait until the descriptor is ready; TimeoutError once the deadline is over."""
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            turn = left
            if self._alive is not None:
                turn = _LOOK_EVERY_S if left is None else min(_LOOK_EVERY_S, left)
            if poll.poll(None if turn is None else turn * 1000):
                return
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"no answer within {timeout:g} s")
            if self._alive is not None and not self._alive() and not poll.poll(0):
                raise EOFError("the other side has ended")


def connect(address: str, max_bytes: int = MAX_BYTES) -> Link:
    """A program's side of the connection that ``EXARL_ADDRESS`` names."""
    if address == "stdio":
        # What the program prints from now on goes where its errors go.
        link = Link(os.dup(0), os.dup(1), max_bytes, blocking=True)
        os.dup2(2, 1)
        return link
    scheme, _, place = address.partition(":")
    if scheme == "fd":
        return Link(int(place), int(place), max_bytes, blocking=True)
    if scheme != "unix":
        raise ValueError(f"{ADDRESS} is 'stdio' or 'unix:PATH', not '{address}'")
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        peer.connect(place)
    except OSError:
        peer.close()
        raise
    descriptor = peer.detach()
    return Link(descriptor, descriptor, max_bytes, blocking=True)
