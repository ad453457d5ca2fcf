"""Messages over a socket whose sender never waits: what cannot be sent at once stays in memory."""

from __future__ import annotations

import select
import socket
import time
from collections import deque

import numpy as np

from exarl.comm.exchange import parse_address
from exarl.comm.wire import Wire, WireError
from exarl.envs.external.protocol import HEADER, MAX_BYTES, ProtocolError, read_header
from exarl.errors import ConfigError

UNIX = "unix:"
"""How the address of a Unix socket begins; any other is HOST:PORT."""
_PIECE = 1 << 16  # bytes to read or send at once
_AHEAD = MAX_BYTES  # bytes that may wait for being sent, before the sender waits as well
_GREETING_S = 10.0  # that the other side may take to prove that it has the key


class Stream:
    """Sends and receives messages over a connected socket, which it owns.

    With a ``key`` both sides first prove that they have it, and messages travel in frames that carry a
    checksum (``exarl.comm.wire``); WireError when the other side does not. EOFError when the other
    side is gone, TimeoutError when it is too late, ProtocolError for what is no message; of these,
    only a TimeoutError leaves the stream usable.
    """

    def __init__(
        self, peer: socket.socket, key: bytes | None = None, *, listens: bool = False
    ) -> None:
        self._peer = peer
        peer.setblocking(False)
        if peer.family != socket.AF_UNIX:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._read, self._unsent = bytearray(), bytearray()
        self._messages: deque[bytes] = deque()
        self._wire = None if key is None else Wire(key, listens=listens, longest=MAX_BYTES)
        try:
            self._greet()
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """The socket's descriptor, to wait for what it ``awaits``."""
        return self._peer.fileno()

    @property
    def awaits(self) -> int:
        """The events of ``poll`` after which there is something to send or to take."""
        return select.POLLIN | (select.POLLOUT if self._unsent else 0)

    def post(self, data: bytes) -> None:
        """Send a message without waiting, unless the other side has left very many unread."""
        while len(self._unsent) > _AHEAD:
            self._turn(None)
        if self._wire is None:
            self._unsent += data
        else:
            for part in self._wire.seal(0, [data]):
                self._unsent += part
        self._send()

    def receive(self, timeout: float | None = None) -> bytes:
        """The next message, within ``timeout`` seconds; 0: only if it is there already."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._messages:
            if not self._turn(deadline):
                raise TimeoutError(f"no answer within {timeout:g} s")
        return self._messages.popleft()

    def flush(self, timeout: float) -> None:
        """Wait until all is sent, at most ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while self._unsent and self._turn(deadline):
            pass

    def close(self) -> None:
        """Hang up; a second time does nothing."""
        self._peer.close()

    def _greet(self) -> None:
        deadline = time.monotonic() + _GREETING_S
        while (wire := self._wire) is not None and not (wire.open and not wire.greeting):
            while wire.greeting:
                self._unsent += wire.greeting.pop(0)
            if not wire.open and not self._turn(deadline):
                raise WireError("it did not prove in time that it has the key")
        self._send()

    def _turn(self, deadline: float | None) -> bool:
        """Send what can be sent and take what has come; False when nothing has up to the deadline."""
        if self._peer.fileno() < 0:
            raise EOFError("the connection was closed")
        self._send()
        poll = select.poll()
        poll.register(self._peer, self.awaits)
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not poll.poll(None if left is None else left * 1000):
            return False
        self._send()
        self._take()
        return True

    def _send(self) -> None:
        try:
            while self._unsent:
                sent = self._peer.send(self._unsent[:_PIECE])
                del self._unsent[:sent]
        except BlockingIOError:
            return
        except OSError:  # reading says so, after what the other side said before it went
            self._unsent.clear()

    def _take(self) -> None:
        try:
            data = self._peer.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            raise EOFError(error.strerror) from error
        if not data:
            raise EOFError("the connection was closed")
        self._read += data
        while (message := self._whole()) is not None:
            if message:
                self._messages.append(message)

    def _whole(self) -> bytes | None:
        """The next message among the bytes read, empty where a frame ends that is none; None when
        it is not complete."""
        if (wire := self._wire) is not None:
            if len(self._read) < wire.wanted:
                return None
            frame = wire.feed(np.frombuffer(self._cut(wire.wanted), np.uint8))
            return frame.payload.tobytes() if frame is not None else b""
        if len(self._read) < HEADER.size:
            return None
        size = HEADER.size + read_header(bytes(self._read[: HEADER.size]))[3]
        if size > MAX_BYTES:
            raise ProtocolError(f"a message of {size} bytes, at most {MAX_BYTES} are allowed")
        return self._cut(size) if len(self._read) >= size else None

    def _cut(self, size: int) -> bytes:
        data = bytes(self._read[:size])
        del self._read[:size]
        return data


def dial(address: str, key: bytes | None) -> Stream:
    """Connect to ``unix:PATH``, or with a key to HOST:PORT. OSError when no one listens there,
    ConfigError when the listener has another key."""
    peer = _socket(address)
    try:
        peer.connect(_place(address))
    except OSError:
        peer.close()
        raise
    try:
        return Stream(peer, None if address.startswith(UNIX) else key)
    except WireError as error:
        raise ConfigError(f"{address}: {error}") from error


def listen(address: str) -> socket.socket:
    """A socket that listens at HOST:PORT; OSError when it cannot."""
    listener = _socket(address)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(_place(address))
        listener.listen(1)
    except OSError:
        listener.close()
        raise
    return listener


def _socket(address: str) -> socket.socket:
    if address.startswith(UNIX):
        return socket.socket(socket.AF_UNIX)
    host = parse_address(address, "address").host
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)


def _place(address: str) -> str | tuple[str, int]:
    if address.startswith(UNIX):
        return address.removeprefix(UNIX)
    found = parse_address(address, "address")
    return found.host, found.port
