"""TCP connections that carry frames (``comm/wire.py``), all served by one thread."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from exarl.comm.messages import Payload, Tag
from exarl.comm.wire import LONGEST, Wire, WireError
from exarl.errors import ConfigError

log = logging.getLogger(__name__)

BEAT_S = 5.0
"""Seconds after which an end that has nothing to send gives a sign of life."""
TIMEOUT_S = 60.0
"""Seconds without a sign of life after which the other end counts as lost, unless said otherwise."""
GREETING_S = 10.0
"""Seconds that a connection has to prove that it knows the key."""
MOST_STRANGERS = 64
"""Connections that may be proving it at a time; of more, the oldest is closed."""
_TICK_S = 0.5
_AT_ONCE = 1 << 20  # bytes read from one connection before the next has its turn
_LOG_EVERY_S = 10.0  # about strangers, so that they cannot fill the disk


@dataclass(frozen=True)
class Address:
    """Where a learner listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, key: str, host: str | None = None) -> Address:
    """HOST:PORT, or PORT alone where there is a default ``host``; ConfigError naming ``key``."""
    name, colon, port = text.strip().rpartition(":")
    name = name.strip("[]")
    if not colon and host is not None:
        name = host
    if not name or not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        form = "[HOST:]PORT" if host is not None else "HOST:PORT"
        raise ConfigError(f"{key} is {form}, not '{text}'")
    return Address(name, int(port))


class Peer:
    """The other end of a connection."""

    def __init__(self, connection: socket.socket, wire: Wire, name: str) -> None:
        self.name = name
        self.wire = wire
        self.connection = connection
        self.begun = self.heard = self.said = time.monotonic()
        self.frames: deque[tuple[int, tuple[Payload, ...]]] = deque()  # not sealed yet
        self.parts: deque[memoryview] = deque()  # to be sent
        self.buffer = np.empty(wire.wanted, np.uint8)
        self.filled = 0
        self.ending = False  # to be closed when all is sent


class Correspondent(Protocol):
    """Is told what comes in, by the thread of an ``Exchange``; it must not wait."""

    def opened(self, peer: Peer) -> None:
        """Both ends have proved that they know the key."""

    def received(self, peer: Peer, tag: int, payload: np.ndarray) -> None:
        """A frame has come. ValueError: it makes no sense, and the connection is to be closed."""

    def lost(self, peer: Peer, reason: str) -> None:
        """A connection is closed, by either end, opened or not; nothing more comes of it."""


class Exchange:
    """Connections to others that know ``key``, until closed.

    A peer without a sign of life for ``timeout`` seconds is lost; this end gives one every ``beat``.
    """

    def __init__(
        self,
        key: bytes,
        correspondent: Correspondent,
        timeout: float = TIMEOUT_S,
        *,
        beat: float = BEAT_S,
        greeting: float = GREETING_S,
        longest: int = LONGEST,
    ) -> None:
        self.timeout = timeout
        self._key, self._correspondent = key, correspondent
        self._beat, self._greeting, self._longest = beat, greeting, longest
        self._lock = threading.Lock()
        self._todo: deque[Callable[[], object]] = deque()  # for the thread
        self._peers: dict[Peer, None] = {}  # oldest first
        self._listener: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._alarm, selectors.EVENT_READ)
        self._logged = 0.0
        self._over = False
        self._thread = threading.Thread(target=self._serve, name="exarl-exchange", daemon=True)
        self._thread.start()

    def listen(self, address: Address) -> Address:
        """Accept connections there; returns the address with its port. ConfigError if that fails."""
        try:
            found = socket.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            listener = socket.create_server(found[0][4][:2], family=found[0][0], backlog=128)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"cannot listen at {address}: {reason}") from error
        listener.setblocking(False)
        self._listener = listener
        self._do(lambda: self._selector.register(listener, selectors.EVENT_READ, self._accept))
        return Address(address.host, listener.getsockname()[1])

    def connect(self, address: Address, patience: float) -> Peer:
        """A connection to the listener there, not opened yet; OSError where there is none."""
        connection = socket.create_connection((address.host, address.port), patience)
        peer = self._peer_of(connection, str(address), listens=False)
        self._do(lambda: self._add(peer))
        return peer

    def send(self, peer: Peer, tag: int, *buffers: Payload) -> None:
        """Send a frame, without waiting; the buffers must not change. Nothing happens if it is lost."""
        with self._lock:
            peer.frames.append((tag, buffers))
        self._do(lambda: self._write(peer))

    def end(self, peer: Peer) -> None:
        """Close a connection when all has been sent."""

        def end() -> None:
            peer.ending = True
            self._write(peer)

        self._do(end)

    def drop(self, peer: Peer, reason: str) -> None:
        """Close a connection at once."""
        self._do(lambda: self._close(peer, reason))

    def close(self, patience: float = 0.0) -> None:
        """Close all connections; those that still have something to send, after ``patience`` s."""
        until = time.monotonic() + patience
        self._do(self._stop_listening)
        for peer in list(self._peers):
            self.end(peer)
        while self._peers and time.monotonic() < until and self._thread.is_alive():
            time.sleep(0.01)
        self._over = True
        self._wake()
        self._thread.join(5.0)

    # -- the thread -------------------------------------------------------------------------------

    def _do(self, action: Callable[[], object]) -> None:
        self._todo.append(action)
        if threading.current_thread() is not self._thread:
            self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError, BlockingIOError):
            os.eventfd_write(self._alarm, 1)

    def _serve(self) -> None:
        try:
            looked = 0.0
            while not self._over:
                for key, mask in self._selector.select(0.0 if self._todo else _TICK_S):
                    if key.data is None:
                        os.eventfd_read(self._alarm)
                    elif isinstance(key.data, Peer):
                        self._attend(key.data, mask)
                    else:
                        key.data()
                while self._todo:
                    self._todo.popleft()()
                if (now := time.monotonic()) - looked > _TICK_S / 2:
                    looked = now
                    self._look(now)
        except Exception:
            log.exception("the connections are lost")
        finally:
            for peer in list(self._peers):
                self._close(peer, "this end was closed")
            self._stop_listening()
            self._selector.close()
            os.close(self._alarm)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, where = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:  # most likely no descriptors are left
            self._complain("anyone", error.strerror or str(error))
            self._make_room(0)
            time.sleep(0.05)
            return
        self._make_room(MOST_STRANGERS - 1)
        self._add(self._peer_of(connection, str(where[0]), listens=True))

    def _make_room(self, most: int) -> None:
        """Close the oldest connections that have not proved anything, so that ``most`` are left."""
        strangers = [peer for peer in self._peers if not peer.wire.open]
        for peer in strangers[: max(0, len(strangers) - most)]:
            self._close(peer, "too many others wait")

    def _peer_of(self, connection: socket.socket, name: str, *, listens: bool) -> Peer:
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Peer(connection, Wire(self._key, listens=listens, longest=self._longest), name)

    def _add(self, peer: Peer) -> None:
        self._peers[peer] = None
        self._selector.register(peer.connection, selectors.EVENT_READ, peer)
        self._write(peer)

    def _attend(self, peer: Peer, mask: int) -> None:
        if mask & selectors.EVENT_READ:
            self._read(peer)
        if mask & selectors.EVENT_WRITE:
            self._write(peer)

    def _read(self, peer: Peer) -> None:
        taken = 0
        try:
            while peer in self._peers and taken < _AT_ONCE:
                space = cast(bytes, peer.buffer[peer.filled :])  # arrays are buffers too
                count = peer.connection.recv_into(space)
                if not count:
                    raise ConnectionError("the connection was closed")
                peer.heard = time.monotonic()
                peer.filled += count
                taken += count
                if peer.filled == len(peer.buffer):
                    self._take(peer)
        except BlockingIOError:
            return
        except OSError as error:
            self._close(peer, error.strerror or str(error))
        except (WireError, ValueError) as error:  # MessageError among them
            self._close(peer, str(error))

    def _take(self, peer: Peer) -> None:
        """The bytes that the wire wanted are there."""
        opened = peer.wire.open
        frame = peer.wire.feed(peer.buffer)
        peer.buffer, peer.filled = np.empty(peer.wire.wanted, np.uint8), 0
        if not opened:
            if peer.wire.open:
                self._correspondent.opened(peer)
            self._write(peer)
        elif frame is not None and frame.tag != Tag.ALIVE:
            self._correspondent.received(peer, frame.tag, frame.payload)

    def _write(self, peer: Peer) -> None:
        if peer not in self._peers:
            return
        try:
            while self._fill(peer):
                sent = peer.connection.send(peer.parts[0])
                peer.said = time.monotonic()
                if sent < len(peer.parts[0]):
                    peer.parts[0] = peer.parts[0][sent:]
                else:
                    peer.parts.popleft()
            if peer.ending:
                raise ConnectionError("this end was closed")
        except BlockingIOError:
            pass
        except OSError as error:
            self._close(peer, error.strerror or str(error))
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.parts else 0)
        self._selector.modify(peer.connection, events, peer)

    def _fill(self, peer: Peer) -> bool:
        """Whether there is something to send, which is then in ``parts``."""
        while peer.wire.greeting:
            peer.parts.append(memoryview(peer.wire.greeting.pop(0)))
        if not peer.parts and peer.wire.open:
            with self._lock:
                frame = peer.frames.popleft() if peer.frames else None
            if frame is not None:
                peer.parts += peer.wire.seal(*frame)
        return bool(peer.parts)

    def _look(self, now: float) -> None:
        """Close what is silent, and give signs of life."""
        for peer in list(self._peers):
            if not peer.wire.open:
                if now - peer.begun > self._greeting:
                    self._close(peer, f"no greeting within {self._greeting:g} s")
            elif now - peer.heard > self.timeout:
                self._close(peer, f"no sign of life for {self.timeout:g} s")
            elif now - peer.said > self._beat and not peer.parts:
                self.send(peer, Tag.ALIVE)

    def _close(self, peer: Peer, reason: str) -> None:
        if peer not in self._peers:
            return
        del self._peers[peer]
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(peer.connection)
        peer.connection.close()
        peer.parts.clear()
        if not peer.wire.open and self._listener is not None:
            self._complain(peer.name, reason)
        self._correspondent.lost(peer, reason)

    def _complain(self, name: str, reason: str) -> None:
        if (now := time.monotonic()) - self._logged > _LOG_EVERY_S:
            self._logged = now
            log.warning("a connection from %s was refused: %s", name, reason)
