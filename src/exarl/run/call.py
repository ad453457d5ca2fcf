"""A simulation's connection to the learner that it acts for."""

from __future__ import annotations

import os
import socket
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exarl.comm.exchange import GREETING_S, TIMEOUT_S, Address, Exchange, Peer
from exarl.comm.messages import Join, Leave, Order, StopActing, Tag, Welcome, decode, encode
from exarl.comm.wire import OTHER_KEY
from exarl.errors import ConfigError, ExarlError
from exarl.version import __version__

FAREWELL_S = 2.0
"""Seconds to send the learner why this simulation leaves."""


@dataclass(frozen=True)
class Invitation:
    """Where and how to join. ``retry``: seconds to try while no learner answers, at the start and
    after one is lost. ``folder``: for files, if the run's directory is not on a disk of this machine.
    """

    address: Address
    key: bytes
    retry: float
    folder: Path | None = None


class NoLearner(ExarlError):
    """The connection to the learner is gone, or was never made."""


class Call:
    """A connection to the learner. Its thread notes what the learner says; ``next`` reads it.

    NoLearner if it cannot be made.
    """

    def __init__(self, invitation: Invitation, ranks: int) -> None:
        self._ranks = ranks
        self._heard: deque[tuple[Order | Welcome, np.ndarray]] = deque()
        self._leave: Leave | None = None
        self._lost: str | None = None
        self._exchange = Exchange(invitation.key, self, TIMEOUT_S)
        self.over = False
        """Whether to give up the block in hand."""
        try:
            self._peer = self._exchange.connect(invitation.address, GREETING_S)
        except OSError as error:
            self._exchange.close()
            reason = error.strerror or str(error)
            raise NoLearner(f"no learner answers at {invitation.address}: {reason}") from error

    def next(self) -> tuple[Order | Welcome | Leave, np.ndarray] | None:
        """What the learner has said and was not read yet; None if there is nothing.

        NoLearner when the connection is lost, ConfigError if the learner has another key.
        """
        if self._leave is not None:
            return self._leave, np.empty(0, np.uint8)
        if self._heard:
            return self._heard.popleft()
        if self._lost == OTHER_KEY:
            raise ConfigError(f"the learner at {self._peer.name} has another key (--key-file)")
        if self._lost is not None:
            raise NoLearner(f"the learner at {self._peer.name} is lost: {self._lost}")
        return None

    def expect(self, timeout: float) -> None:
        """From now on the learner is lost after ``timeout`` seconds without a sign of life."""
        self._exchange.timeout = timeout

    def send(self, tag: Tag, payload: bytes) -> None:
        """Send a message, without waiting."""
        self._exchange.send(self._peer, tag, payload)

    def close(self, reason: str = "") -> None:
        """End the connection, and tell the learner the ``reason``; a second call does nothing."""
        if reason and self._leave is None:
            self.send(Tag.LEAVE, encode(Leave(reason)))
        self._exchange.close(FAREWELL_S)

    # -- called by the thread of the exchange -----------------------------------------------------

    def opened(self, peer: Peer) -> None:
        place = f"{socket.gethostname()}, process {os.getpid()}"
        self._exchange.send(peer, Tag.JOIN, encode(Join(__version__, self._ranks, place)))

    def received(self, peer: Peer, tag: int, payload: np.ndarray) -> None:
        if tag == Tag.LEAVE:
            self._leave, self.over = decode(payload, Leave)[0], True
        elif tag == Tag.WELCOME:
            self._heard.append(decode(payload, Welcome))
        elif tag == Tag.ORDER:
            order, behind = decode(payload, Order)
            if isinstance(order, StopActing):
                self.over = True
            else:
                self._heard.append((order, behind))
        else:
            raise ValueError(f"a message {tag}, which no learner sends")

    def lost(self, peer: Peer, reason: str) -> None:
        self._lost, self.over = reason, True
