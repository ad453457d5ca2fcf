"""A learner's actors that come over a socket: simulations that join and may be lost."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from exarl.comm.codec import encode_arrays
from exarl.comm.exchange import Address, Exchange, Peer
from exarl.comm.messages import (
    Grant,
    Join,
    Leave,
    Order,
    SendState,
    StopActing,
    Tag,
    Welcome,
    decode,
    encode,
)
from exarl.comm.waiting import wait_for
from exarl.training.actors import BLOCK, LOST, NOTE, READY, STATE, ActorEvent
from exarl.types import Arrays, EnvSpec
from exarl.version import __version__

STORE_SHARE = 0.3
"""The part of this machine's memory that blocks and weights under way may take (as in Ray)."""
GOODBYE_S = 5.0
"""Seconds to send actors the end of the run."""


@dataclass(eq=False)
class Joined:
    """What has joined: its connection, and the actor that it is, once there is a place for it."""

    peer: Peer
    place: str  # its host and process
    actor: int | None = None
    ready: bool = False
    weights: object = None  # those that it was sent last

    def __str__(self) -> str:
        return f"{self.place} ({self.peer.name})"


class JoinedActorPool:
    """The actors of one learner; ``welcome`` makes what the actor of a number is told.

    ``hire`` opens a place, which the next simulation that waits or joins takes with the number and the
    states of that place. A simulation that is lost before it was ready leaves the place open: it has
    acted nothing. The methods of a ``Correspondent`` are called by the thread of the exchange.
    """

    def __init__(
        self, key: bytes, welcome: Callable[[int], Welcome], ranks: int, timeout: float
    ) -> None:
        self.events: deque[ActorEvent] = deque()
        self.spec: EnvSpec | None = None
        """What the environments of all actors must look like; that of the first, if it is new."""
        self._welcome, self._ranks = welcome, ranks
        self._lock = threading.RLock()
        self._open: deque[tuple[int, Arrays]] = deque()  # places: numbers and states
        self._known: dict[Peer, Joined] = {}  # that have joined
        self._actors: dict[int, tuple[Joined, Arrays]] = {}  # those with a place
        self._exchange = Exchange(key, self, timeout)

    def listen(self, address: Address) -> Address:
        """Let simulations join there; returns the address with its port."""
        return self._exchange.listen(address)

    def close(self, leave: Leave) -> None:
        """Tell every simulation why it ends."""
        with self._lock:
            peers, self._known, self._actors = list(self._known), {}, {}
        for peer in peers:
            self._exchange.send(peer, Tag.LEAVE, encode(leave))
        self._exchange.close(GOODBYE_S)

    # -- what a learner asks ----------------------------------------------------------------------

    def hire(self, actor: int, states: Arrays) -> None:
        with self._lock:
            if actor not in self._actors and all(actor != number for number, _ in self._open):
                self._open.append((actor, states))
                self._fill()

    def put(self, weights: bytes) -> object:
        return weights

    def roll(self, actor: int, weights: object, version: int) -> None:
        with self._lock:
            if (found := self._actors.get(actor)) is not None:
                # Without weights it acts with those it has.
                news = b"" if found[0].weights is weights else weights
                found[0].weights = weights
                assert isinstance(news, bytes)
                self._order(actor, Grant(version), news)

    def ask_state(self, actor: int, snapshot: int) -> None:
        self._order(actor, SendState(snapshot))

    def stop(self, actor: int) -> None:
        self._order(actor, StopActing())

    def dismiss(self, actor: int) -> None:
        with self._lock:
            if (found := self._actors.pop(actor, None)) is not None:
                self._known.pop(found[0].peer, None)
                self._exchange.drop(found[0].peer, "it was dismissed")

    def store(self) -> int:
        return int(STORE_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))

    def room(self) -> int:
        with self._lock:
            return len(self._known)

    def first_spec(self, note: Callable[[str], None], stopped: Callable[[], None]) -> EnvSpec:
        """The spec of the environments of the first simulation that is ready, which will be actor 0.

        ``stopped`` may raise meanwhile.
        """
        self.hire(0, {})

        def found() -> EnvSpec | None:
            stopped()
            with self._lock:
                for event in [event for event in self.events if event.kind == NOTE]:
                    self.events.remove(event)
                    note(event.error)
                return self.spec

        return wait_for(found)

    def _order(self, actor: int, order: Order, payload: bytes = b"") -> None:
        with self._lock:
            if (found := self._actors.get(actor)) is not None:
                self._exchange.send(found[0].peer, Tag.ORDER, encode(order), payload)

    # -- what simulations say ---------------------------------------------------------------------

    def opened(self, peer: Peer) -> None:
        pass  # it speaks first

    def received(self, peer: Peer, tag: int, payload: np.ndarray) -> None:
        with self._lock:
            found = self._known.get(peer)
            if tag == Tag.JOIN and found is None:
                self._joins(peer, decode(payload, Join)[0])
            elif found is not None and tag == Tag.LEAVE:
                self.lost(peer, decode(payload, Leave)[0].reason)
                self._exchange.end(peer)
            elif found is None or found.actor is None:
                raise ValueError("it spoke before it was asked")
            elif tag == Tag.SPEC and not found.ready:
                self._is_ready(found, decode(payload, EnvSpec)[0])
            elif tag in (Tag.BLOCK, Tag.STATE) and found.ready:
                kind = BLOCK if tag == Tag.BLOCK else STATE
                self.events.append(ActorEvent(kind, found.actor, payload.tobytes()))
            else:
                raise ValueError(f"a message {tag} that was not asked for")

    def lost(self, peer: Peer, reason: str) -> None:
        with self._lock:
            found = self._known.pop(peer, None)
            if found is None or found.actor is None:
                return
            _, states = self._actors.pop(found.actor)
            if found.ready:
                self.events.append(ActorEvent(LOST, found.actor, error=f"{found}: {reason}"))
            else:
                self._open.appendleft((found.actor, states))
                self._say(f"{found} could not become actor {found.actor}: {reason}")
                self._fill()

    def _joins(self, peer: Peer, join: Join) -> None:
        refusal = ""
        if join.version != __version__:
            refusal = f"it is EXARL {join.version}, the learner's is {__version__}"
        elif join.ranks != self._ranks:
            refusal = (
                f"a simulation of this run has {self._ranks} ranks (process_per_env), not"
                f" {join.ranks}: mpiexec -n {self._ranks} exarl actor ..., or --ranks {self._ranks}"
            )
        if refusal:
            self._refuse(peer, refusal)
            return
        self._known[peer] = Joined(peer, join.place)
        self._fill()

    def _fill(self) -> None:
        """Give open places to simulations that wait."""
        waiting = deque(one for one in self._known.values() if one.actor is None)
        while waiting and self._open:
            (actor, states), found = self._open.popleft(), waiting.popleft()
            found.actor = actor
            self._actors[actor] = found, states
            welcome = encode(self._welcome(actor), encode_arrays(states))
            self._exchange.send(found.peer, Tag.WELCOME, welcome)

    def _is_ready(self, found: Joined, spec: EnvSpec) -> None:
        self.spec = self.spec or spec
        if dataclasses.replace(spec, about={}) != dataclasses.replace(self.spec, about={}):
            text = "its environment has other observations or actions than that of the run"
            self._refuse(found.peer, text)
            self.lost(found.peer, text)
            return
        assert found.actor is not None
        found.ready = True
        self._say(f"actor {found.actor} joined: {found}")
        self.events.append(ActorEvent(READY, found.actor))

    def _refuse(self, peer: Peer, reason: str) -> None:
        self._exchange.send(peer, Tag.LEAVE, encode(Leave(reason, code=2)))
        self._exchange.end(peer)

    def _say(self, text: str) -> None:
        self.events.append(ActorEvent(NOTE, -1, error=text))
