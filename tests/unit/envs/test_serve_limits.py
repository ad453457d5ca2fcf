"""What a server does not let its clients do: fill its memory, its process table, its descriptors."""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.jobs import wait_until
from support.programs import cartpole, serving, subject

from exarl.envs.external import program, serve
from exarl.envs.external.remote import RemoteEnv
from exarl.envs.external.secure import check_address
from exarl.envs.external.serve import Server
from exarl.errors import ConfigError, EnvironmentFailure

zmq = pytest.importorskip("zmq")

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
FRAME = b"\x03" + struct.pack(">Q", 1 << 19) + bytes(1 << 19)  # and more are to come
HELLO, CLOSE = (b"EXRL" + struct.pack("<BBHQQ", 1, kind, 0, 0, 0) for kind in (1, 7))


def plays(server: Server) -> None:
    """A client is served as if nothing had happened."""
    env = RemoteEnv(server.address, timeout=10)
    assert env.reset(seed=1)[0] is not None
    env.close()


def test_a_message_of_many_frames_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    """Each is shorter than the limit; ZeroMQ would keep them all until the last one."""
    with serving([cartpole()], max_bytes=1 << 20) as server, caplog.at_level(logging.WARNING):
        client = RemoteEnv(server.address)
        port = int(server.address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), 10) as peer:
            peer.sendall(GREETING)
            while len(peer.recv(64, socket.MSG_PEEK)) < 64:
                time.sleep(0.01)
            peer.sendall(b"\x04" + bytes([len(READY)]) + READY)
            with pytest.raises(OSError):  # a broken pipe, or a reset connection
                for _ in range(400):
                    peer.sendall(FRAME)
                    time.sleep(0.01)
        assert "bytes that are no whole message" in caplog.text
        client.reset(seed=3)
        assert client.step(0)[1] == 1.0, "who was there before stays"
        client.close()
        plays(server)


def test_long_conversations_are_not_cut_off() -> None:
    with serving([cartpole()], max_bytes=1 << 10) as server:
        env = RemoteEnv(server.address)
        for _ in range(10):
            env.reset(seed=1)
            time.sleep(serve.TICK / 2)
            for _ in range(8):
                env.step(0)
        assert server.sessions == 1
        env.close()


def test_sessions_that_begin_and_end_at_once_do_not_pile_up() -> None:
    """A client that only says hello and goodbye has no more programs than any other."""
    most = 0

    def count(server: Server) -> int:
        return server.sessions + len(server._leaving)

    with serving(subject("deaf", "1").split(), sessions=2) as server:
        client = zmq.Context()
        line = client.socket(zmq.DEALER)
        line.connect(server.address)
        for _ in range(30):
            line.send(HELLO)
            most = max(most, count(server))
            time.sleep(0.02)
        assert count(server) <= 2, "counted when they begin: none has answered yet"
        for session in list(server._sessions):
            line.send(HELLO[:8] + struct.pack("<Q", session) + HELLO[16:])
            line.send(CLOSE[:8] + struct.pack("<Q", session) + CLOSE[16:])
        for _ in range(30):
            line.send(HELLO)
            most = max(most, count(server))
            time.sleep(0.02)
        assert 2 <= most <= 4
        client.destroy(linger=0)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("where", ["folder", "accept"])
def test_what_a_server_lacks_for_one_client_does_not_end_it(
    monkeypatch: pytest.MonkeyPatch, number: int, where: str
) -> None:
    def lacking(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    with serving([cartpole()]) as server:
        with monkeypatch.context() as patch:
            if where == "folder":
                patch.setattr(program.tempfile, "mkdtemp", lacking)
            else:
                patch.setattr(program.Program, "accept", lacking)
            with pytest.raises(EnvironmentFailure, match=os.strerror(number)):
                RemoteEnv(server.address, timeout=10)
        wait_until(lambda: server.sessions == 0, 5)
        plays(server)


# -- ipc:// ------------------------------------------------------------------------------------------


def test_a_file_that_is_not_the_server_s_stays(tmp_path: Path) -> None:
    path = tmp_path / "thesis.tex"
    path.write_text("years of work")
    with pytest.raises(ConfigError, match="a file is there already"):
        Server([cartpole()], f"ipc://{path}")
    assert path.read_text() == "years of work"


def test_a_live_address_is_not_taken_over_and_a_stale_one_is(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/socket"
    with serving([cartpole()], address) as server:
        with pytest.raises(ConfigError, match="a server is there already"):
            Server([cartpole()], address)
        plays(server)
    assert not (tmp_path / "socket").exists()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(f"{tmp_path}/socket")
    with serving([cartpole()], address) as server:
        plays(server)


def test_a_file_that_took_its_place_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with serving([cartpole()], f"ipc://{path}"):
        path.unlink()
        path.write_text("another's")
    assert path.read_text() == "another's"


@pytest.mark.parametrize(
    ("address", "words"),
    [("ipc://@name", "abstract name"), ("ipc://*", "an address is"), ("ipc://", "an address is")],
)
def test_names_that_no_folder_protects_are_refused(address: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_address(address, None)


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "socket", tmp_path / ("x" * 120)):
        with pytest.raises(ConfigError, match="cannot listen at ipc://"):
            Server([cartpole()], f"ipc://{path}")
    assert threading.active_count() < 50
