"""``exarl serve-env`` and ExaRemote-v0: sessions, limits, faults and keys."""

from __future__ import annotations

import gc
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from support.jobs import wait_until
from support.programs import HOST, cartpole, serving, subject

from exarl.envs import make_env
from exarl.envs.external.remote import RemoteEnv
from exarl.envs.external.secure import Keys, check_address, make_keys, read_keys
from exarl.envs.external.serve import Server
from exarl.errors import ConfigError, EnvironmentFailure

zmq = pytest.importorskip("zmq")

ANY = "tcp://127.0.0.1:*"


class Raw:
    """A client of a few lines that knows nothing of EXARL but docs/external.md."""

    def __init__(self, address: str, kind: int = zmq.REQ) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(kind)
        self.socket.connect(address)

    def ask(self, kind: int, *arrays: bytes, session: int = 0) -> tuple[int, int, bytes]:
        """Kind, session and body of the answer."""
        body = b"".join(arrays)
        return self.send(
            b"EXRL" + struct.pack("<BBHQQ", 1, kind, len(arrays), session, len(body)) + body
        )

    def send(self, data: bytes) -> tuple[int, int, bytes]:
        self.socket.send(data)
        assert self.socket.poll(10_000)
        answer = self.socket.recv()
        magic, version, kind, _, session, length = struct.unpack_from("<4sBBHQQ", answer)
        assert (magic, version, length) == (b"EXRL", 1, len(answer) - 24)
        return kind, session, answer[24:]

    def close(self) -> None:
        self.context.destroy(linger=0)


def number(value: int) -> bytes:
    return struct.pack("<BB6xq", 2, 0, value)


@pytest.fixture
def raw() -> Iterator[Any]:
    made: list[Raw] = []

    def make(address: str, kind: int = zmq.REQ) -> Raw:
        made.append(Raw(address, kind))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture(scope="module")
def carts() -> Iterator[Server]:
    """A server of carts."""
    with serving([cartpole()]) as server:
        yield server


@pytest.fixture(scope="module")
def counting() -> Iterator[Server]:
    """A server of environments that count."""
    with serving([subject()], max_bytes=1 << 20) as server:
        yield server


# -- clients -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [zmq.REQ, zmq.DEALER])
def test_a_client_that_knows_only_the_documentation(counting: Server, raw: Any, kind: int) -> None:
    client = raw(counting.address, kind)
    answer, session, body = client.ask(1)
    assert answer == 2
    assert session != 0
    # Kinds 1 (Box) and 2 (Discrete), each in an array of two bytes; then four arrays.
    assert body[:24] == struct.pack("<BB6xQBB6x", 1, 1, 2, 1, 2)
    assert client.ask(3, number(77), session=session) == (
        4,
        session,
        struct.pack("<BB6xQ3d", 4, 1, 3, 0, 1, 77),
    )
    expected = struct.pack("<BB6xQ3d", 4, 1, 3, 1, 1, 77) + struct.pack("<BB6xd", 4, 0, 3.0)
    expected += struct.pack("<BB6xQBB6x", 1, 1, 2, 0, 0)
    assert client.ask(5, number(3), session=session) == (6, session, expected)


def test_it_is_the_environment_that_is_served() -> None:
    inside, _ = make_env("Acrobot-v1", {})
    with serving([*HOST, "Acrobot-v1"]) as server:
        env = RemoteEnv(server.address)
        one, other = env.reset(seed=6)[0], inside.reset(seed=6)[0]
        assert env.observation_space == inside.observation_space
        for action in np.random.default_rng(0).integers(3, size=100):
            np.testing.assert_array_equal(one, other)
            one, *rest = env.step(action)
            other, *expected = inside.step(action)
            assert rest[:3] == expected[:3]
        env.close()


def test_every_client_has_an_environment_of_its_own(counting: Server) -> None:
    envs = [RemoteEnv(counting.address) for _ in range(3)]
    for i, env in enumerate(envs):
        env.reset(seed=i)
        for _ in range(i):
            env.step(0)
    assert [env.step(0)[0].tolist() for env in envs] == [[1, 1, 0], [2, 1, 1], [3, 1, 2]]
    for env in envs:
        env.close()


def test_a_client_that_is_started_again_begins_afresh(counting: Server, raw: Any) -> None:
    for _ in range(2):
        client = raw(counting.address)
        _, session, _ = client.ask(1)
        _, _, body = client.ask(3, number(5), session=session)
        assert struct.unpack("<3d", body[16:]) == (0, 1, 5)  # the first reset of this environment
        client.close()  # as a killed client would, without a word


def test_environments_step_side_by_side() -> None:
    with serving(subject("sleep", "400").split()) as server:
        envs = [RemoteEnv(server.address) for _ in range(4)]
        for env in envs:
            env.reset(seed=0)
        threads = [threading.Thread(target=env.step, args=(0,)) for env in envs]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - started < 1.2, "four steps of 0.4 s, one after the other take 1.6"
        for env in envs:
            env.close()


def test_the_environment_goes_when_its_client_closes_or_is_forgotten(carts: Server) -> None:
    before = carts.sessions
    env, other = RemoteEnv(carts.address), RemoteEnv(carts.address)
    assert carts.sessions == before + 2
    env.close()
    env.close()
    del other
    gc.collect()
    wait_until(lambda: carts.sessions == before, 5)


# -- limits ------------------------------------------------------------------------------------------


def test_there_is_a_limit_on_environments() -> None:
    with serving([cartpole()], sessions=2) as server:
        first, second = RemoteEnv(server.address), RemoteEnv(server.address)
        with pytest.raises(EnvironmentFailure, match="2 environments already"):
            RemoteEnv(server.address)
        first.close()
        third = RemoteEnv(server.address)
        assert third.reset(seed=1)[0].shape == (4,)
        second.close()
        third.close()


def test_the_places_of_clients_that_are_gone_are_given_to_others(raw: Any) -> None:
    with serving([cartpole()], sessions=2) as server:
        clients = [raw(server.address) for _ in range(2)]
        for client in clients:
            assert client.ask(1)[0] == 2
        assert raw(server.address).ask(1)[0] == 8  # full, and both are there
        for client in clients:
            client.close()  # without a word, as when they are killed
        time.sleep(0.1)
        env = RemoteEnv(server.address)
        assert server.sessions == 1
        env.close()


def test_an_idle_session_is_closed_and_a_reset_begins_another() -> None:
    with serving([subject()], idle_s=0.3) as server:
        env = RemoteEnv(server.address)
        assert env.reset(seed=1)[0][1] == 1
        assert env.reset(seed=1)[0][1] == 2
        wait_until(lambda: server.sessions == 0, 5)
        with pytest.raises(EnvironmentFailure, match="idle for too long"):
            env.step(0)
        assert env.reset(seed=1)[0][1] == 1
        wait_until(lambda: server.sessions == 0, 5)
        assert env.reset(seed=4)[0].tolist() == [0, 1, 4]
        env.close()


def test_a_message_that_is_too_long_is_dropped(counting: Server, raw: Any) -> None:
    client = raw(counting.address, zmq.DEALER)
    client.socket.send(bytes(2 << 20))
    assert not client.socket.poll(300)
    env = RemoteEnv(counting.address)
    assert env.reset(seed=1)[0][0] == 0
    env.close()


# -- faults ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("orders", "words"),
    [
        (("exit", "2"), ["exit code 3", "diverged"]),
        (("crash", "2"), ["SIGSEGV"]),
        (("garbage", "2"), ["begins with"]),
        (("fail", "2"), ["the solver diverged"]),
    ],
    ids=lambda value: value[0],
)
def test_a_broken_environment_harms_nobody_else(orders: tuple[str, str], words: list[str]) -> None:
    with serving(subject(*orders).split()) as server:
        env, other = RemoteEnv(server.address), RemoteEnv(server.address)
        env.reset(seed=1)
        other.reset(seed=2)
        env.step(0)
        with pytest.raises(EnvironmentFailure) as failure:
            env.step(0)
        for word in words:
            assert word in str(failure.value)
        assert other.step(1)[0].tolist() == [1, 1, 2]
        assert env.reset(seed=3)[0].tolist() == [0, 1, 3]
        env.close()
        other.close()


def test_a_program_that_does_not_start_is_told_to_the_client() -> None:
    with serving(subject("early", "9").split()) as server:
        with pytest.raises(EnvironmentFailure, match=r"exit code 9.*no input file"):
            RemoteEnv(server.address)
        assert server.sessions == 0
    failure = pytest.raises(EnvironmentFailure, match="cannot start")
    with serving(["/no/such/program"]) as server, failure:
        RemoteEnv(server.address)


def test_a_slow_step_is_no_dead_server() -> None:
    with serving(subject("sleep", "1200").split()) as server:
        env = RemoteEnv(server.address, timeout=0.5)
        env.reset(seed=1)
        assert env.step(0)[0][0] == 1
        env.close()


def test_a_dead_server_is_noticed_in_time() -> None:
    with serving([cartpole()]) as server:
        env = RemoteEnv(server.address, timeout=0.5)
        env.reset(seed=1)
    for call in (
        lambda: env.step(0),
        env.reset,
        lambda: RemoteEnv(server.address, timeout=0.5),
    ):
        started = time.monotonic()
        with pytest.raises(
            EnvironmentFailure, match=r"no answer from tcp://.* within 0\.5 s|reset"
        ) as failure:
            call()
        assert failure.value.kind == "timeout" or "reset" in str(failure.value)
        assert time.monotonic() - started < 1.2
    env.close()


def test_a_server_that_is_started_again_is_found_again() -> None:
    with serving([subject()]) as server:
        env = RemoteEnv(server.address, timeout=5)
        env.reset(seed=1)
    with serving([subject()], server.address):
        with pytest.raises(EnvironmentFailure, match="does not know this session"):
            env.step(0)
        assert env.reset(seed=8)[0].tolist() == [0, 1, 8]
    env.close()


def test_waiting_clients_are_told_when_the_server_stops() -> None:
    seen: list[BaseException] = []

    def play(env: RemoteEnv) -> None:
        try:
            env.step(0)
        except EnvironmentFailure as error:
            seen.append(error)

    with serving(subject("hang", "1").split()) as server:
        env = RemoteEnv(server.address)
        env.reset(seed=1)
        player = threading.Thread(target=play, args=(env,))
        player.start()
        time.sleep(0.1)
    player.join(5)
    assert "the server was stopped" in str(seen[0])
    env.close()


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", b"header"),
        (b"\0" * 24, b"begins with"),
        (b"EXRL\x02" + bytes(19), b"version 2"),
        (
            b"EXRL\x01\x01\x01\0" + bytes(8) + b"\x08" + bytes(7) + b"\x01\x09" + bytes(6),
            b"dimensions",
        ),
        (b"EXRL\x01\x05\0\0" + bytes(16), b"does not know this session"),
        (b"EXRL\x01\x02\0\0" + bytes(16), b"does not know this session"),
    ],
)
def test_a_malformed_message_is_answered(
    counting: Server, raw: Any, data: bytes, word: bytes
) -> None:
    client = raw(counting.address)
    kind, _, body = client.send(data)
    assert kind == 8
    assert word in body
    assert client.ask(1)[0] == 2


@pytest.mark.parametrize(
    ("kind", "arrays", "word"),
    [
        (5, (number(0),), b"before the first RESET"),
        (3, (), b"holds one array"),
        (3, (number(-7),), b"seed"),
        (2, (), b"not for a server"),
        (9, (), b"holds one array"),
    ],
)
def test_a_request_that_makes_no_sense_is_answered(
    counting: Server, raw: Any, kind: int, arrays: tuple[bytes, ...], word: bytes
) -> None:
    client = raw(counting.address)
    _, session, _ = client.ask(1)
    answer, _, body = client.ask(kind, *arrays, session=session)
    assert answer == 8
    assert word in body
    assert client.ask(3, number(1), session=session)[0] == 4
    for action in (number(5), number(-1), number(0)[:-8], struct.pack("<BB6xd", 4, 0, 1.0)):
        assert client.ask(5, action, session=session)[0] == 8
    assert client.ask(5, number(4), session=session)[0] == 6


def test_one_request_at_a_time(raw: Any) -> None:
    with serving(subject("sleep", "300").split()) as server:
        client = raw(server.address, zmq.DEALER)
        _, session, _ = client.ask(1)
        client.ask(3, number(1), session=session)
        head = b"EXRL" + struct.pack("<BBHQQ", 1, 5, 1, session, 16)
        client.socket.send(head + number(1))
        kind, _, body = client.send(head + number(1))
        assert kind == 8
        assert b"one request at a time" in body
        assert client.socket.poll(5000)
        assert client.socket.recv()[5] == 6


# -- addresses and keys ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    ["tcp://0.0.0.0:5755", "tcp://*:5755", "tcp://10.1.2.3:80", "tcp://node7:5755", "tcp://[::]:1"],
)
def test_other_hosts_need_keys(address: str) -> None:
    with pytest.raises(ConfigError, match="needs keys"):
        Server([cartpole()], address)
    with pytest.raises(ConfigError, match=r"cannot be made: ConfigError: .*needs keys"):
        make_env("ExaRemote-v0", {"address": address})
    assert check_address(address, Keys(b"", b"", b"")) == address


@pytest.mark.parametrize(
    "address",
    [
        "",
        "127.0.0.1:5755",
        "tcp://127.0.0.1",
        "udp://127.0.0.1:1",
        "tcp://127.0.0.1:99999",
        "ipc://",
    ],
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ConfigError, match="an address is"):
        check_address(address, None)


def test_this_host_by_all_its_names(tmp_path: Path) -> None:
    for address in (
        f"ipc://{tmp_path}/socket",
        "tcp://localhost:*",
        "tcp://127.0.0.1:*",
        "tcp://[::1]:*",
    ):
        try:
            with serving([subject()], address) as server:
                env = RemoteEnv(server.address)
                env.reset(seed=0)
                env.close()
        except ConfigError as error:
            assert "[::1]" in str(error), "only a host without IPv6 may refuse"


def test_an_address_that_is_taken(carts: Server) -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        Server([cartpole()], carts.address)


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    paths = make_keys(tmp_path / "keys")
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o600, 0o600]
    server, client = map(read_keys, paths)
    assert (server.public, server.other) == (client.other, client.public)
    assert len({server.secret, client.secret, server.public, client.public}) == 4
    with pytest.raises(ConfigError, match="there already"):
        make_keys(tmp_path / "keys")
    paths[0].chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_keys(paths[0])
    for text in ("", "{}", "[1]", '{"public": 1, "secret": 2, "other": 3}', "ä"):
        paths[1].write_text(text)
        with pytest.raises(ConfigError, match=r"holds no keys|no text"):
            read_keys(paths[1])
    with pytest.raises(ConfigError, match="No such file"):
        read_keys(tmp_path / "none")


def test_only_who_has_the_key_comes_in(tmp_path: Path) -> None:
    server_key, client_key = make_keys(tmp_path / "a")
    stranger = read_keys(make_keys(tmp_path / "b")[1])
    with serving([subject()], keys=read_keys(server_key)) as server:
        env = RemoteEnv(server.address, keys=str(client_key))
        assert env.reset(seed=3)[0].tolist() == [0, 1, 3]
        with pytest.raises(EnvironmentFailure, match="no answer"):
            RemoteEnv(server.address, timeout=0.5)
        # A stranger who knows the server's public key, but has a key of his own.
        forged = tmp_path / "forged.key"
        right = read_keys(client_key)
        words = {"public": stranger.public, "secret": stranger.secret, "other": right.other}
        forged.touch(0o600)
        forged.write_text(str({k: v.decode() for k, v in words.items()}).replace("'", '"'))
        with pytest.raises(EnvironmentFailure, match="no answer"):
            RemoteEnv(server.address, keys=str(forged), timeout=0.5)
        assert server.sessions == 1
        assert env.step(1)[1] == 1.0
        env.close()


def test_a_message_travels_in_secret(tmp_path: Path) -> None:
    """What passes on the wire with keys does not hold the plain header."""
    server_key, client_key = make_keys(tmp_path / "a")
    with serving([subject()], keys=read_keys(server_key)) as server:
        port = int(server.address.rpartition(":")[2])
        relay = Relay(port)
        env = RemoteEnv(f"tcp://127.0.0.1:{relay.port}", keys=str(client_key))
        env.reset(seed=1)
        env.close()
        relay.close()
    assert len(relay.seen) > 200
    assert b"EXRL" not in relay.seen


class Relay:
    """Passes bytes on between a client and a server, and keeps them."""

    def __init__(self, port: int) -> None:
        import socket

        self.seen = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._target = port
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        import select
        import socket

        client, _ = self._listener.accept()
        server = socket.create_connection(("127.0.0.1", self._target))
        other = {client: server, server: client}
        while True:
            ready, _, _ = select.select([client, server], [], [], 5)
            data = ready[0].recv(1 << 16) if ready else b""
            if not data:
                break
            self.seen += data
            other[ready[0]].sendall(data)
        client.close()
        server.close()

    def close(self) -> None:
        self._thread.join(10)
        self._listener.close()


def test_gymnasium_makes_it_too(counting: Server) -> None:
    env = gymnasium.make("ExaRemote-v0", address=counting.address)
    assert env.reset(seed=2)[0][2] == 2
    env.close()
