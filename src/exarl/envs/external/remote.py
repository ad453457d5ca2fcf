"""ExaRemote-v0: an environment that ``exarl serve-env`` offers, on this host or another."""

from __future__ import annotations

import secrets
import time
import weakref
from contextlib import suppress
from typing import Any

from exarl.envs.external.client import ClientEnv
from exarl.envs.external.protocol import (
    MAX_BYTES,
    Kind,
    Message,
    decode,
    encode,
    ping_message,
    read_header,
    read_pong,
)
from exarl.envs.external.secure import LOCAL, Keys, check_address, load_zmq, read_keys
from exarl.errors import EnvironmentFailure


class RemoteEnv(ClientEnv):
    """Talks to ``exarl serve-env`` at ``address``, which makes an environment for this client alone.

    address: tcp://HOST:PORT or ipc://FILE; another host than this one needs ``keys``.
    keys: the file client.key that 'exarl serve-env --make-keys' wrote.
    timeout: seconds without a sign of life from the server after which it counts as dead. A step
        may take longer: the server says that it is still at it.
    """

    def __init__(
        self, address: str = LOCAL, keys: str | None = None, timeout: float = 30.0
    ) -> None:
        if timeout <= 0:
            raise ValueError("timeout must be above 0")
        self._keys = read_keys(keys) if keys else None
        self._address = check_address(address, self._keys)
        self._timeout = timeout
        self._line: _Line | None = None
        self._begin()

    def _open(self) -> None:
        self.close()
        self._line = _Line(self._address, self._keys)
        self._end = weakref.finalize(self, self._line.close)

    def _exchange(self, asked: Kind, data: bytes) -> bytes:
        """Send, then wait; ask for a sign of life now and then."""
        line = self._line
        assert line is not None
        line.send(data)
        alive, pings = time.monotonic(), line.pings
        while True:
            answer = line.receive(self._timeout / 4)
            if answer is None:
                if time.monotonic() - alive >= self._timeout:
                    late = f"no answer from {self._address} within {self._timeout:g} s"
                    raise EnvironmentFailure(late, "timeout")
                line.ping()
                continue
            alive = time.monotonic()
            kind, _, session, _ = read_header(answer)
            if kind is not Kind.PONG:
                line.session = session if kind is Kind.SPACES else line.session
                return answer
            number, working = read_pong(decode(answer))
            if number > pings and not working:
                # Messages keep their order: a server that is not at it never had the request.
                raise EnvironmentFailure(f"{self._address} lost a message")

    def _peer(self, asked: Kind | None = None) -> str:
        return self._address


class _Line:
    """A ZeroMQ socket to a server, and the session that is held over it."""

    def __init__(self, address: str, keys: Keys | None) -> None:
        self._zmq = zmq = load_zmq()
        self.session, self.pings = 0, 0
        self._context = zmq.Context()
        self._socket: Any = self._context.socket(zmq.DEALER)
        options = {
            zmq.ROUTING_ID: b"E" + secrets.token_bytes(15),  # the same after a reconnection
            zmq.MAXMSGSIZE: MAX_BYTES,
            zmq.HEARTBEAT_IVL: 5000,
            zmq.IPV6: int("[" in address),
        }
        if keys is not None:
            options |= {
                zmq.CURVE_PUBLICKEY: keys.public,
                zmq.CURVE_SECRETKEY: keys.secret,
                zmq.CURVE_SERVERKEY: keys.other,
            }
        try:
            for option, value in options.items():
                self._socket.set(option, value)
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise EnvironmentFailure(f"cannot connect to {address}: {error}") from error

    def send(self, data: bytes) -> None:
        # A server that takes no messages sends no answer, which ``receive`` notices.
        with suppress(self._zmq.Again):
            self._socket.send(data, self._zmq.DONTWAIT)

    def ping(self) -> None:
        """Ask for a sign of life."""
        self.pings += 1
        self.send(encode(ping_message(self.pings, self.session)))

    def receive(self, timeout: float) -> bytes | None:
        """The next message, or None after ``timeout`` seconds."""
        if not self._socket.poll(max(1, round(timeout * 1000))):
            return None
        data: bytes = self._socket.recv_multipart()[-1]
        return data

    def close(self) -> None:
        linger = 0  # milliseconds for the last message to go
        if self.session:
            self.send(encode(Message(Kind.CLOSE, (), self.session)))
            self.session, linger = 0, 500
        self._context.destroy(linger=linger)
