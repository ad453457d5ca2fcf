"""A relay between a program on this machine and an ``ExaClient-v0`` on another.

The program connects to a Unix socket, as the client libraries in C and Fortran do; the relay proves to
EXARL that it has the key, and passes whole messages on. It keeps nothing and answers nothing by
itself: who ends on one side, has ended on the other.
"""

from __future__ import annotations

import logging
import select
import socket
import subprocess
import time
from contextlib import suppress

from exarl.comm.wire import WireError
from exarl.envs.external.caller import Door
from exarl.envs.external.protocol import ProtocolError
from exarl.envs.external.stream import Stream, dial
from exarl.errors import ConfigError

log = logging.getLogger(__name__)

_FAREWELL_S = 5.0
_LOOK_EVERY_S = 0.1
_GONE = (EOFError, ProtocolError, WireError)


class ProgramRelay:
    """Takes programs at ``door``, one after the other, to the EXARL at ``address``.

    While none listens there, it tries for ``retry`` seconds; then it is a ConfigError, as it is if the
    listener has another key.
    """

    def __init__(self, door: Door, address: str, key: bytes, retry: float) -> None:
        self._door, self._address, self._key, self._retry = door, address, key, retry

    def serve(self, program: subprocess.Popen[bytes] | None = None) -> None:
        """Relay for whichever program connects; with a ``program``, until that has ended."""
        while (peer := self._next(program)) is not None:
            local = Stream(peer)
            try:
                remote = self._dial(program)
                if remote is None:
                    return
                log.info("a program is connected to %s", self._address)
                join(local, remote)
            finally:
                local.close()

    def _next(self, program: subprocess.Popen[bytes] | None) -> socket.socket | None:
        self._door.listener.settimeout(_LOOK_EVERY_S)
        while program is None or program.poll() is None:
            with suppress(TimeoutError):
                return self._door.listener.accept()[0]
        return None

    def _dial(self, program: subprocess.Popen[bytes] | None) -> Stream | None:
        """The connection to EXARL; None where the program ends before there is one."""
        until = time.monotonic() + self._retry
        while program is None or program.poll() is None:
            try:
                return dial(self._address, self._key)
            except (OSError, EOFError) as error:
                if time.monotonic() >= until:
                    raise ConfigError(f"no EXARL listens at {self._address}: {error}") from error
            time.sleep(_LOOK_EVERY_S)
        return None


def join(one: Stream, other: Stream) -> None:
    """Pass messages on between two streams until one of them ends; then close both."""
    try:
        while True:
            poll = select.poll()
            for stream in (one, other):
                poll.register(stream.fileno(), stream.awaits)
            poll.poll()
            for source, target in ((one, other), (other, one)):
                with suppress(TimeoutError):
                    while True:
                        target.post(source.receive(0.0))
    except _GONE as error:
        log.info("the connection has ended: %s", error)
    finally:
        for stream in (one, other):
            with suppress(*_GONE):
                stream.flush(_FAREWELL_S)
            stream.close()
