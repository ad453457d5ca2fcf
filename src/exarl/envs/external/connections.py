"""The connections of a server: none may hold more of its memory than a message needs.

ZeroMQ limits the length of a frame, but not the number of frames of a message, and gives no part of a
message away before its last frame has come. So this counts what has come over a connection since its
last whole message, and cuts it where that is too much.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
from typing import Any

log = logging.getLogger(__name__)

_SLACK = 1 << 20  # bytes of handshakes, heartbeats and the like
_RECEIVED = struct.Struct("<128xQ")  # tcpi_bytes_received in Linux's struct tcp_info


class Connections:
    """Watches the TCP connections of a bound ZeroMQ socket.

    It does nothing where the system does not count their bytes.
    """

    def __init__(self, zmq: Any, bound: Any, address: str, max_bytes: int) -> None:
        self._zmq = zmq
        self._allowed = 2 * max_bytes + _SLACK
        self._port = int(address.rpartition(":")[2]) if address.startswith("tcp://") else None
        self._seen: dict[int, int] = {}  # descriptor -> bytes received up to its last whole message
        self._fresh: set[int] = set()  # those with a whole message since the last look
        events = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
        self._monitor = bound.get_monitor_socket(events | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)

    def delivered(self, descriptor: int) -> None:
        """A whole message has come over a connection."""
        self._fresh.add(descriptor)

    def check(self) -> None:
        """Cut every connection over which too much has come without a whole message."""
        self._notice()
        for descriptor, seen in list(self._seen.items()):
            try:
                peer = socket.socket(fileno=descriptor)
            except OSError:  # it is closed already
                del self._seen[descriptor]
                continue
            received = self._received(peer)
            if received is None:
                del self._seen[descriptor]
            elif descriptor in self._fresh:
                self._seen[descriptor] = received
            elif received - seen > self._allowed:
                log.warning("a client sent %d bytes that are no whole message", received - seen)
                with contextlib.suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)
                del self._seen[descriptor]
            peer.detach()  # it remains ZeroMQ's
        self._fresh.clear()

    def _notice(self) -> None:
        """Take note of connections that have come and gone."""
        from zmq.utils.monitor import parse_monitor_message

        while self._monitor.poll(0):
            event = parse_monitor_message(self._monitor.recv_multipart())
            if event["event"] == self._zmq.EVENT_ACCEPTED:
                self._seen[event["value"]] = 0
            else:
                self._seen.pop(event["value"], None)

    def _received(self, peer: socket.socket) -> int | None:
        """Bytes that have come over a connection; None when it is none of this server's."""
        with contextlib.suppress(OSError, struct.error):
            if peer.getsockname()[1] == self._port:
                info = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.size)
                return int(_RECEIVED.unpack(info)[0])
        return None
