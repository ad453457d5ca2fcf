"""Connections of a learner: what strangers do, what gets lost, and what arrives."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from exarl.comm.exchange import MOST_STRANGERS, Address, Exchange, Peer, parse_address
from exarl.comm.wire import MAGIC, Wire
from exarl.errors import ConfigError

KEY = b"a key that is long enough for tests"
HERE = Address("127.0.0.1", 0)


class Notes:
    """Remembers what it is told; refuses messages with tag 9."""

    def __init__(self) -> None:
        self.known: list[Peer] = []
        self.messages: list[tuple[int, bytes]] = []
        self.reasons: list[str] = []

    def opened(self, peer: Peer) -> None:
        self.known.append(peer)

    def received(self, peer: Peer, tag: int, payload: np.ndarray) -> None:
        if tag == 9:
            raise ValueError("no such message")
        self.messages.append((tag, payload.tobytes()))

    def lost(self, peer: Peer, reason: str) -> None:
        self.reasons.append(reason)


def until(condition: Callable[[], Any], patience: float = 20.0) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


@contextlib.contextmanager
def listening(**options: Any) -> Iterator[tuple[Exchange, Notes, Address]]:
    notes = Notes()
    exchange = Exchange(KEY, notes, **options)
    try:
        yield exchange, notes, exchange.listen(HERE)
    finally:
        exchange.close()


@contextlib.contextmanager
def joined(address: Address, **options: Any) -> Iterator[tuple[Exchange, Notes, Peer]]:
    notes = Notes()
    exchange = Exchange(options.pop("key", KEY), notes, **options)
    try:
        yield exchange, notes, exchange.connect(address, 5.0)
    finally:
        exchange.close()


def test_messages_of_any_length_arrive_both_ways() -> None:
    long = np.random.default_rng(0).integers(0, 255, 20_000_000, np.uint8)
    with listening() as (learner, heard, address), joined(address) as (actor, said, peer):
        actor.send(peer, 1, b"")  # before the greeting is over
        for tag in (2, 3):
            actor.send(peer, tag, b"head", long)
        until(lambda: len(heard.messages) == 3)
        assert heard.messages == [(1, b""), *((t, b"head" + long.tobytes()) for t in (2, 3))]
        learner.send(heard.known[0], 5, long)
        until(lambda: said.messages)
        assert said.messages == [(5, long.tobytes())]


def test_what_was_sent_before_an_end_arrives() -> None:
    with listening() as (learner, heard, address), joined(address) as (_, said, _):
        until(lambda: heard.known)
        for _ in range(50):
            learner.send(heard.known[0], 1, bytes(10_000))
        learner.end(heard.known[0])
        until(lambda: said.reasons)
        assert len(said.messages) == 50 and said.reasons == ["the connection was closed"]


def test_a_stranger_learns_nothing_and_harms_nothing() -> None:
    with listening(greeting=0.3) as (_, heard, address), joined(address) as (actor, _, peer):
        where = (address.host, address.port)
        with joined(address, key=b"another key, long enough") as (_, refused, _):
            until(lambda: refused.reasons == ["it has another key"])
        for junk in (
            b"",
            b"G",
            b"GET / HTTP/1.1\r\n\r\n" * 1000,
            MAGIC + bytes(1000),
            b"\xff" * 80,
        ):
            with socket.create_connection(where) as stranger:
                stranger.sendall(junk)
                answer = b"".join(iter(lambda s=stranger: quietly(s), b""))
                assert len(answer) in (0, 64), "a random number and a proof, or nothing"
        assert len(heard.known) == 1
        actor.send(peer, 1, b"still here")
        until(lambda: heard.messages == [(1, b"still here")])


def quietly(stranger: socket.socket) -> bytes:
    try:
        return stranger.recv(4096)
    except ConnectionError:
        return b""


def test_half_open_connections_make_room_for_those_who_know_the_key() -> None:
    with listening(greeting=60.0) as (learner, heard, address), contextlib.ExitStack() as stack:
        for _ in range(2 * MOST_STRANGERS):
            stack.enter_context(socket.create_connection((address.host, address.port)))
        actor, _, peer = stack.enter_context(joined(address))
        actor.send(peer, 1, b"here")
        until(lambda: heard.messages == [(1, b"here")])
        assert len(learner._peers) <= MOST_STRANGERS + 1


def test_a_greeting_takes_only_so_long() -> None:
    with listening(greeting=0.2) as (learner, _, address):
        with socket.create_connection((address.host, address.port)) as stranger:
            stranger.sendall(MAGIC)
            stranger.settimeout(10)
            assert stranger.recv(1) == b""
        assert not learner._peers


def test_one_that_knows_the_key_and_talks_nonsense_is_cut_off() -> None:
    with listening(longest=1000) as (_, heard, address):
        with joined(address) as (actor, said, peer):
            actor.send(peer, 1, bytes(1001))
            until(lambda: said.reasons)
        assert "1000 are allowed" in heard.reasons[0]
        with joined(address) as (actor, said, peer):
            actor.send(peer, 9)
            until(lambda: said.reasons)
        assert heard.reasons[1] == "no such message" and not heard.messages


def test_silence_is_loss_and_signs_of_life_prevent_it() -> None:
    lively = {"timeout": 1.0, "beat": 0.2}
    with listening(**lively) as (_, heard, address), joined(address, **lively), silent(address):
        until(lambda: len(heard.known) == 2)
        until(lambda: heard.reasons)
        time.sleep(1.5)
        assert heard.reasons == ["no sign of life for 1 s"]


@contextlib.contextmanager
def silent(address: Address) -> Iterator[None]:
    """Greets like an actor, and says nothing more, as a machine whose network is cut."""
    wire = Wire(KEY, listens=False)
    with socket.create_connection((address.host, address.port)) as connection:
        connection.sendall(wire.greeting.pop())
        wire.feed(np.frombuffer(connection.recv(64, socket.MSG_WAITALL), np.uint8))
        connection.sendall(wire.greeting.pop())
        yield


def test_many_threads_may_send() -> None:
    with listening() as (_, heard, address), joined(address) as (actor, _, peer):
        threads = [
            threading.Thread(target=lambda i=i: [actor.send(peer, i) for _ in range(100)])
            for i in range(10, 18)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: len(heard.messages) == 800)


def test_an_address_that_is_taken_or_wrong_is_bad_input() -> None:
    with listening() as (_, _, address), pytest.raises(ConfigError, match="cannot listen at 127"):
        Exchange(KEY, Notes()).listen(address)
    assert parse_address("5756", "listen", "127.0.0.1") == Address("127.0.0.1", 5756)
    assert str(parse_address("[::1]:80", "--join")) == "[::1]:80"
    for text in ("5756", "host:", "host:99999", ":80", "host:http", "host:-1"):
        with pytest.raises(ConfigError, match="--join is HOST:PORT, not"):
            parse_address(text, "--join")
