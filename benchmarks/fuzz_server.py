"""Malformed messages against ``exarl serve-env``: it stays up, its memory flat, good clients served.

    python benchmarks/fuzz_server.py [--messages 10000] [--seed 1]

Starts a server, plays with a good client all the time, sends the messages (noise, changed and cut
messages, lies about lengths and shapes, messages that are too long, odd frames, bytes that are no
ZeroMQ at all, requests that make no sense), and prints what was answered and the server's memory.
"""

from __future__ import annotations

import argparse
import random
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import zmq

from exarl.envs.external.protocol import Kind, Message, ProtocolError, decode, encode, reset_message
from exarl.envs.external.remote import RemoteEnv

LONGEST = 1 << 20
EVERY = 25  # messages between two steps of the good client


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with served() as (process, address):
        sender, good = Sender(address, options.seed), GoodClient(address)
        bombard(sender, good, options.messages // 10)  # buffers and pools take their first size
        sender.forget()
        before, started = memory_mb(process.pid), time.monotonic()
        bombard(sender, good, options.messages)
        seconds, after = time.monotonic() - started, memory_mb(process.pid)
        sender.close()
        late = GoodClient(address)
        late.play(50)
        late.close()
        good.close()
        assert process.poll() is None, "the server is gone"
    print(f"messages            {options.messages:,} in {seconds:.1f} s")
    for kind, count in sorted(sender.sent.items()):
        print(f"  {kind:18s}{count:,}")
    print(f"answered            {sender.answers:,}, all of them errors; the others were dropped")
    print(f"server's memory     {before:.1f} MB before, {after:.1f} MB after")
    print(
        f"good client         {good.steps:,} steps meanwhile, each as expected; a new one is served"
    )
    print(f"exit code           {process.returncode}")


@contextmanager
def served() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server of CartPole-v1 and its address."""
    words = ["serve-env", "CartPole-v1", "--bind", "tcp://127.0.0.1:*", "--max-sessions", "4"]
    process = subprocess.Popen(
        [sys.executable, "-m", "exarl", *words, "--max-message", str(LONGEST)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def memory_mb(pid: int) -> float:
    """Resident memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def bombard(sender: Sender, good: GoodClient, count: int) -> None:
    for i in range(count):
        sender.send_one()
        if i % EVERY == 0:
            good.play(1)
    sender.take_answers(patience=1.0)


class GoodClient:
    """Plays an episode after the other, beside an environment of the same kind in this process."""

    def __init__(self, address: str) -> None:
        self._env, self._twin = RemoteEnv(address), gymnasium.make("CartPole-v1")
        self.steps, self._ended = 0, True

    def play(self, steps: int) -> None:
        for _ in range(steps):
            if self._ended:
                seen = [env.reset(seed=self.steps)[0] for env in (self._env, self._twin)]
                np.testing.assert_array_equal(*seen)
            (one, *rest), (other, *twin) = self._env.step(1), self._twin.step(1)
            np.testing.assert_array_equal(one, other)
            assert rest[:3] == twin[:3]
            self._ended = rest[1] or rest[2]
            self.steps += 1

    def close(self) -> None:
        self._env.close()


class Sender:
    """Makes malformed messages of all kinds, sends them, and looks at the answers."""

    def __init__(self, address: str, seed: int) -> None:
        self._address, self._rng = address, random.Random(seed)
        self._context: Any = zmq.Context()
        self._sockets = [self._connect() for _ in range(4)]
        self.sent: Counter[str] = Counter()
        self.answers = 0
        self._makers: dict[str, Callable[[], list[bytes] | None]] = {
            "noise": lambda: [self._rng.randbytes(self._rng.randrange(300))],
            "noise with magic": lambda: [
                b"EXRL\x01" + self._rng.randbytes(self._rng.randrange(90))
            ],
            "changed": self._changed,
            "cut": self._cut,
            "lengthened": lambda: [self._any() + self._rng.randbytes(self._rng.randint(1, 64))],
            "lying header": self._lying_header,
            "lying shape": self._lying_shape,
            "senseless": self._senseless,
            "odd frames": self._odd_frames,
            "too long": self._too_long,
            "no ZeroMQ": self._no_zmq,
        }
        self._rare = {"too long": 0.02, "no ZeroMQ": 0.05}

    def send_one(self) -> None:
        """Send one malformed message of a random kind."""
        rng = self._rng
        while True:
            name = rng.choice(list(self._makers))
            if rng.random() > self._rare.get(name, 1.0):
                continue
            frames = self._makers[name]()
            if frames is None or not welcome(frames[-1]):
                break
        self.sent[name] += 1
        if frames is not None:
            number = rng.randrange(len(self._sockets))
            with suppress(zmq.Again):
                self._sockets[number].send_multipart(frames, zmq.DONTWAIT)
            if name == "too long":  # for which the server hangs up
                self._sockets[number].close(linger=200)
                self._sockets[number] = self._connect()
        self.take_answers()

    def take_answers(self, patience: float = 0.0) -> None:
        """Whatever has come back must be errors."""
        deadline = time.monotonic() + patience
        while True:
            found = False
            for each in self._sockets:
                while each.poll(0):
                    message = decode(each.recv_multipart()[-1])
                    assert message.kind in (Kind.ERROR, Kind.PONG), message
                    self.answers += 1
                    found = True
            if not found and time.monotonic() >= deadline:
                return
            if not found:
                time.sleep(0.01)

    def forget(self) -> None:
        """Count anew."""
        self.sent.clear()
        self.answers = 0

    def close(self) -> None:
        self._context.destroy(linger=0)

    def _connect(self) -> Any:
        found = self._context.socket(zmq.DEALER)
        found.connect(self._address)
        return found

    def _any(self) -> bytes:
        """A message that is well-formed."""
        rng = self._rng
        arrays = [
            np.zeros([rng.randrange(4) for _ in range(rng.randrange(4))], rng.choice(["u1", "f8"]))
            for _ in range(rng.randrange(3))
        ]
        kind = rng.choice([Kind.RESET, Kind.STEP, Kind.SPACES, Kind.RESULT])
        return encode(Message(kind, tuple(arrays), rng.randrange(1, 1 << 63)))

    def _changed(self) -> list[bytes]:
        data = bytearray(self._any())
        for _ in range(self._rng.randint(1, 6)):
            data[self._rng.randrange(len(data))] = self._rng.choice((0, 1, 127, 128, 255))
        return [bytes(data)]

    def _cut(self) -> list[bytes]:
        data = self._any()
        return [data[: self._rng.randrange(len(data))]]

    def _lying_header(self) -> list[bytes]:
        rng = self._rng
        count = rng.choice((0, 1, 16, 17, 65535))
        length = rng.choice((0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1))
        head = struct.pack("<4sBBHQQ", b"EXRL", 1, rng.randrange(256), count, 0, length)
        return [head + rng.randbytes(rng.randrange(64))]

    def _lying_shape(self) -> list[bytes]:
        rng = self._rng
        sides = [
            rng.choice((0, 1, 2**20, 2**32, 2**63, 2**64 - 1)) for _ in range(rng.randint(1, 8))
        ]
        body = struct.pack("<BB6x", rng.randint(1, 4), len(sides))
        body += struct.pack(f"<{len(sides)}Q", *sides) + rng.randbytes(8)
        return [struct.pack("<4sBBHQQ", b"EXRL", 1, 5, 1, 1, len(body)) + body]

    def _senseless(self) -> list[bytes]:
        rng = self._rng
        kind = rng.choice([Kind.SPACES, Kind.OBSERVATION, Kind.RESULT, Kind.ERROR, Kind.PONG])
        message = Message(kind, (np.zeros(rng.randrange(9)),), rng.randrange(1 << 63))
        return [encode(rng.choice((message, reset_message(3, rng.randrange(1, 1 << 63)))))]

    def _odd_frames(self) -> list[bytes]:
        return [
            self._rng.randbytes(self._rng.randint(1, 9)) for _ in range(self._rng.randint(2, 9))
        ]

    def _too_long(self) -> list[bytes]:
        return [bytes(LONGEST + self._rng.randrange(1, LONGEST))]

    def _no_zmq(self) -> None:
        """A connection that talks something else."""
        host, port = self._address.removeprefix("tcp://").split(":")
        noise = self._rng.choice((b"GET / HTTP/1.1\r\n\r\n", self._rng.randbytes(200), b""))
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=2) as peer:
            peer.sendall(noise)


def welcome(data: bytes) -> bool:
    """Whether this is a message that a server would be right to take, which is not what we send."""
    try:
        return decode(data).kind in (Kind.HELLO, Kind.PING)
    except ProtocolError:
        return False


if __name__ == "__main__":
    main()
