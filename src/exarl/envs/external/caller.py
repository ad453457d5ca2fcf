"""A client that connects by itself: an environment waits for it at an address."""

from __future__ import annotations

import logging
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from exarl.comm.exchange import Address, parse_address
from exarl.comm.join_key import VARIABLE, open_key
from exarl.comm.wire import WireError
from exarl.envs.external.protocol import Kind, encode_empty
from exarl.envs.external.stream import UNIX, Stream, listen
from exarl.envs.external.unix_address import UnixAddress
from exarl.errors import ConfigError, EnvironmentFailure

log = logging.getLogger(__name__)

_FAREWELL_S = 0.5


def place_of(address: str, number: int) -> str:
    """Where environment ``number`` listens: HOST:PORT + number, or the path with its number."""
    if address.startswith(UNIX):
        return address.replace("{number}", str(number))
    found = parse_address(address, "address")
    return str(Address(found.host, found.port + number))


def key_at(address: str, key_file: str | None) -> bytes | None:
    """The key of clients that connect to ``address``, made if its file does not exist; None for a
    Unix socket, which its folder protects."""
    if address.startswith(UNIX):
        return None
    if key_file is None and VARIABLE not in os.environ:
        raise ConfigError(
            f"address {address} needs a key, so that no one else can connect: key_file FILE (which is"
            f" made if it does not exist), or {VARIABLE}"
        )
    return open_key(os.environ, Path(key_file or "").expanduser())[0]


class Door:
    """Where clients connect to an environment; they wait until they are let in."""

    def __init__(self, address: str, key: bytes | None) -> None:
        self.address, self.key = address, key
        self._file: UnixAddress | None = None
        if address.startswith(UNIX):
            try:
                self._file = UnixAddress(address.removeprefix(UNIX))
            except ConfigError as error:
                several = "with several environments, write {number} into the path"
                raise ConfigError(f"{error}; {several}") from error
            self.listener = socket.socket(fileno=self._file.descriptor)
            return
        try:
            self.listener = listen(address)
        except OSError as error:
            raise ConfigError(f"cannot listen at {address}: {error.strerror}") from error

    def close(self) -> None:
        """Let no one in any more."""
        self.listener.close()
        if self._file is not None:
            self._file.remove()


class Caller:
    """A client that has connected, or will: ``accept`` waits for it."""

    patience = 0.0  # a client is not ended: it only learns that EXARL closes

    def __init__(self, door: Door) -> None:
        self._door = door
        self._stream: Stream | None = None

    @property
    def connected(self) -> bool:
        return self._stream is not None

    def accept(self, timeout: float) -> bool:
        """Whether a client has connected within ``timeout`` s."""
        deadline = time.monotonic() + timeout
        door = self._door
        while self._stream is None:
            door.listener.settimeout(max(0.0, min(0.1, deadline - time.monotonic())))
            try:
                peer, _ = door.listener.accept()
            except (TimeoutError, BlockingIOError):
                if time.monotonic() >= deadline:
                    return False
                continue
            try:
                self._stream = Stream(peer, door.key, listens=True)
            except (WireError, EOFError) as error:
                log.warning("a stranger at %s was refused: %s", door.address, error)
        return True

    def ask(self, data: bytes, timeout: float | None = None) -> bytes:
        """Send a message and wait for the answer; EOFError or TimeoutError when there is none."""
        assert self._stream is not None
        self._stream.post(data)
        try:
            return self._stream.receive(timeout)
        except WireError as error:
            raise EOFError(str(error)) from error

    def failure(self, error: EOFError | TimeoutError) -> EnvironmentFailure:
        """What ``ask`` raised, as an EnvironmentFailure."""
        late = isinstance(error, TimeoutError)
        what = f"gave {error}" if late else f"is lost: {error}"
        return EnvironmentFailure(
            f"the client at {self._door.address} {what}", "timeout" if late else "crash"
        )

    def close(self) -> None:
        """Tell the client that EXARL closes."""
        if self._stream is not None:
            with suppress(EOFError, TimeoutError, WireError):
                self._stream.post(encode_empty(Kind.CLOSE))
                self._stream.flush(_FAREWELL_S)
            self._stream.close()
