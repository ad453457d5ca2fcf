"""Hostile clients of ``exarl serve-env``, on loopback: a good client is served meanwhile and after.

The server stays up, its memory and the number of its environments stay within their limits, and it ends
in order. Malformed messages are those of benchmarks/fuzz_server.py.
"""

from __future__ import annotations

import errno
import random
import resource
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import zmq
from benchmarks.attack.addresses import at_a_file
from benchmarks.attack.jobs import (
    FAIL_ONCE,
    KINDS,
    Fault,
    begin,
    finish,
    have_faults,
)
from benchmarks.attack.serving import (
    SERVE,
    SESSIONS,
    ended_badly,
    in_child,
    listening,
    served_again,
)
from benchmarks.attack.tries import Attempt
from benchmarks.fuzz_server import LONGEST, GoodClient, Sender

from exarl.envs.external.protocol import (
    Kind,
    Message,
    decode,
    encode,
    ping_message,
    reset_message,
)
from exarl.errors import EnvironmentFailure

TRIES = 300
GROWTH_MB = 96.0
"""What the server may need beyond what it had: a few messages of LONGEST in each of its queues."""
FEW_FILES = 64


def prepare(folder: Path) -> None:
    """Nothing is needed."""


def attempt(rng: random.Random, references: Path, work: Path) -> Attempt:
    """Start a server, attack it, and see whether it still does its work."""
    work.mkdir()
    if rng.random() < 0.15:
        return at_a_file(rng, work)
    name = rng.choice([each for each in ATTACKS if each != "no room" or have_faults()])
    options: dict[str, Any] = {}
    if name == "few descriptors":
        options["prepare"] = few_descriptors
    elif name == "no room":
        kinds, error = rng.choice([KINDS["mkdir"], KINDS["open"]]), rng.choice(["ENOSPC", "EMFILE"])
        options["fault"] = Fault(
            "/exarl-", kinds, rng.randint(1, 6), FAIL_ONCE, getattr(errno, error)
        )
    words = [*SERVE, "--bind", "tcp://127.0.0.1:*"]
    server = begin(words, work, **options)
    what = f"{name} against exarl {' '.join(words)} {options.get('fault', '')}"
    if not (address := listening(server)):
        return Attempt(what, f"the server did not start: {finish(server, limit=1).err[-200:]!r}")
    told = in_child(
        lambda: besiege(ATTACKS[name], rng, address, server.pid), server, work.parent / "verdict"
    )
    return Attempt(what, told or ended_badly(server))


def besiege(deed: Callable[[Siege], str], rng: random.Random, address: str, server: int) -> str:
    """Attack while a good client plays; what went wrong."""
    with suppress(OSError):
        Path(f"/proc/{server}/clear_refs").write_text("5")  # the peak of memory begins here
    before = memory(server, "VmRSS")
    siege = Siege(rng, address, server)
    problem = deed(siege)
    siege.close()
    if not problem and siege.patient is not None:
        siege.patient.play(3)
        siege.patient.close()
    if not problem:
        late = served_again(address)
        late.play(5)
        late.close()
    grown = memory(server, "VmHWM") - before
    if not problem and grown > GROWTH_MB:
        problem = f"the server's memory grew by {grown:.0f} MB"
    return problem


def memory(pid: int, field: str) -> float:
    """Of a process, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


class Siege:
    """The sockets of the attackers, and a good client among them."""

    def __init__(self, rng: random.Random, address: str, server: int) -> None:
        self.rng, self.address, self.server = rng, address, server
        self.context: Any = zmq.Context()
        self.patient: GoodClient | None = None
        self.raw: list[socket.socket] = []

    def good(self, steps: int = 1) -> None:
        """The good client plays on, each step as expected."""
        if self.patient is None:
            self.patient = GoodClient(self.address)
        self.patient.play(steps)

    def client(self) -> Any:
        """A ZeroMQ socket of a hostile client."""
        made = self.context.socket(zmq.DEALER)
        made.set(zmq.LINGER, 0)
        made.set(zmq.SNDTIMEO, 2000)
        made.connect(self.address)
        return made

    def connection(self) -> socket.socket:
        """A plain connection."""
        host, port = self.address.removeprefix("tcp://").rsplit(":", 1)
        self.raw.append(socket.create_connection((host, int(port)), timeout=5))
        return self.raw[-1]

    def programs(self) -> int:
        """How many environments the server has running."""
        task = Path(f"/proc/{self.server}/task/{self.server}/children")
        return len(task.read_text().split())

    def close(self) -> None:
        for each in self.raw:
            each.close()
        self.context.destroy(linger=0)


# -- attacks -----------------------------------------------------------------------------------------


def malformed(siege: Siege) -> str:
    """Noise, cut and changed messages, lies about lengths and shapes."""
    siege.good()
    sender = Sender(siege.address, siege.rng.randrange(1 << 30))
    for _ in range(siege.rng.randint(10, 120)):
        sender.send_one()
        if siege.rng.random() < 0.05:
            siege.good()
    sender.take_answers(patience=0.1)
    sender.close()
    return ""


GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY" + b"\x0bSocket-Type" + (6).to_bytes(4, "big") + b"DEALER"


def many_frames(siege: Siege) -> str:
    """One message of many frames, each within the limit, all together far beyond it."""
    siege.good()
    rng, peer = siege.rng, siege.connection()
    size, count = rng.choice([(LONGEST - 100, 300), (100_000, 2000), (10, 300_000), (0, 500_000)])
    with suppress(OSError):  # the server may hang up at any time
        peer.sendall(GREETING + bytes([4, len(READY)]) + READY)
        batch = max(1, min(1000, (1 << 20) // (size + 1)))
        for sent in range(0, count, batch):
            peer.sendall(
                (b"\x03" + size.to_bytes(8, "big") + bytes(size)) * batch
            )  # long, and more
            if sent % (20 * batch) == 0:
                siege.good()
        if rng.random() < 0.5:
            peer.sendall(b"\x00\x01x")
    siege.good(3)
    return ""


def half_open(siege: Siege) -> str:
    """Connections that begin ZeroMQ's greeting and say no more."""
    siege.good()
    for _ in range(siege.rng.choice([5, 60, 200])):
        peer = siege.connection()
        with suppress(OSError):
            peer.sendall(GREETING[: siege.rng.randrange(len(GREETING) + 1)])
    siege.good(3)
    return ""


def sessions(siege: Siege) -> str:
    """More clients than there are environments, none of which waits for an answer."""
    siege.good()
    clients = [siege.client() for _ in range(siege.rng.choice([6, 20, 60]))]
    for client in clients:
        for _ in range(siege.rng.choice([1, 1, 5])):
            with suppress(zmq.Again):
                client.send(encode(Message(Kind.HELLO)))
    most, deadline = 0, time.monotonic() + siege.rng.choice([0.3, 1.0, 2.0])
    while time.monotonic() < deadline:
        siege.good()
        most = max(most, siege.programs())
        time.sleep(0.02)
    vanish(siege, clients)
    return f"{most} environments at a time, the limit is {SESSIONS}" if most > SESSIONS else ""


def vanish(siege: Siege, clients: list[Any]) -> None:
    """Some say goodbye, some just go."""
    for client in clients:
        if siege.rng.random() < 0.3:
            with suppress(zmq.Again):
                client.send(encode(Message(Kind.CLOSE)), zmq.DONTWAIT)
        client.close(linger=0)


def deaf(siege: Siege) -> str:
    """Clients that ask and ask and never take an answer."""
    siege.good()
    client = siege.client()
    request = encode(
        siege.rng.choice([ping_message(1), reset_message(3, 12345), Message(Kind.STEP, (), 99)])
    )
    with suppress(zmq.Again):
        for number in range(siege.rng.choice([500, 5000])):
            client.send(request, zmq.DONTWAIT)
            if number % 500 == 0:
                siege.good()
    siege.good(3)
    return ""


def rude(siege: Siege) -> str:
    """Clients with a session that send what makes no sense in it, and others' session numbers."""
    client, rng = siege.client(), siege.rng
    client.send(encode(Message(Kind.HELLO)))
    if not client.poll(20_000):
        return "no answer to a HELLO"
    session = decode(client.recv_multipart()[-1]).session
    odd = [np.zeros(5), np.array(9), np.array(-1), np.array(1 << 40), np.full(3, np.nan)]
    odd += [np.zeros((0,)), np.zeros((2, 2)), np.array(1, np.uint8), np.array(0.5)]
    for _ in range(rng.randint(3, 40)):
        number = rng.choice([session, session, 1, session ^ 1, (1 << 63) - 1])
        kind = rng.choice([Kind.STEP, Kind.STEP, Kind.RESET, Kind.HELLO, Kind.PING, Kind.RESULT])
        arrays = tuple(rng.choices(odd, k=rng.choice([0, 1, 1, 2])))
        with suppress(zmq.Again, ValueError):
            client.send(encode(Message(kind, arrays, number)))
        if rng.random() < 0.1:
            siege.good()
    client.close(linger=200)
    siege.good(3)
    return ""


def few_descriptors_flood(siege: Siege) -> str:
    """As many connections as the server may have files, or nearly, and then sessions."""
    clients = [siege.client() for _ in range(6)]
    time.sleep(0.1)
    for _ in range(siege.rng.randint(5, 50)):
        with suppress(OSError):
            siege.connection()
    time.sleep(0.1)
    for client in clients:
        with suppress(zmq.Again):
            client.send(encode(Message(Kind.HELLO)), zmq.DONTWAIT)
    time.sleep(siege.rng.choice([0.3, 1.5]))
    vanish(siege, clients)
    for each in siege.raw:
        each.close()
    return ""


def come_and_go(siege: Siege) -> str:
    """Clients that ask for an environment and are gone, one after the other."""
    siege.good()
    most, deadline = 0, time.monotonic() + 2.0
    while time.monotonic() < deadline:
        client = siege.client()
        with suppress(zmq.Again):
            client.send(encode(Message(Kind.HELLO)), zmq.DONTWAIT)
        time.sleep(siege.rng.choice([0.005, 0.05]))
        client.close(linger=20)
        siege.good()
        most = max(most, siege.programs())
    over = most > 2 * SESSIONS  # those that are leaving included
    return f"{most} environments at a time, the limit is {SESSIONS}" if over else ""


def few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, FEW_FILES))


def no_room(siege: Siege) -> str:
    """Clients whose environments cannot be started, for a file operation fails."""
    for _ in range(8):
        with suppress(EnvironmentFailure):
            GoodClient(siege.address).close()
    return ""


ATTACKS: dict[str, Callable[[Siege], str]] = {
    "malformed": malformed,
    "many frames": many_frames,
    "half open": half_open,
    "sessions": sessions,
    "deaf": deaf,
    "rude": rude,
    "few descriptors": few_descriptors_flood,
    "come and go": come_and_go,
    "no room": no_room,
}
