"""The relay: programs in C at an EXARL that listens at HOST:PORT with a key."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.programs import ROOT, compiled, in_fortran

from exarl.envs.external.loop_env import LoopEnv
from exarl.envs.external.stream import Stream, dial
from exarl.envs.external.stream import listen as listen_at
from exarl.envs.registration import make_env
from exarl.envs.taken import TAKEN
from exarl.errors import ConfigError, EnvironmentFailure

HASTY = Path(__file__).with_name("hasty.c")


@pytest.fixture
def place() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "rig.key"
    path.write_text(secrets.token_hex(32))
    path.chmod(0o600)
    return path


class Relaying:
    """``exarl relay`` in a process of its own."""

    def __init__(self, place: str, key: Path, *words: str) -> None:
        command = [sys.executable, "-m", "exarl", "relay", "--to", place, "--key-file", str(key)]
        self.process = subprocess.Popen(
            [*command, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ends(self) -> tuple[int, str]:
        _, told = self.process.communicate(timeout=30)
        return self.process.returncode, told


@pytest.fixture
def relays() -> Iterator[list[Relaying]]:
    made: list[Relaying] = []
    yield made
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def waiting(place: str, key: Path) -> LoopEnv:
    made = make_env("ExaClient-v0", {"address": place, "key_file": str(key)})[0].unwrapped
    assert isinstance(made, LoopEnv)
    return made


def test_a_program_in_c_acts_over_tcp(place: str, key: Path, relays: list[Relaying]) -> None:
    """Several episodes, and the end of EXARL, which is the program's end as well."""
    relays.append(Relaying(place, key, "--", str(compiled(HASTY)), "10", "3"))
    env = waiting(place, key)
    for seed in range(3):
        assert env.reset(seed=seed)[0] == 0
        steps = [env.step(1) for _ in range(3)]
        assert [(seen[0], reward, over) for seen, reward, over, *_ in steps] == [
            (step + 1, 1.5, step == 2) for step in range(3)
        ]
    env.close()
    assert relays[0].ends() == (0, "")


def test_a_program_in_fortran_acts_over_tcp(place: str, key: Path, relays: list[Relaying]) -> None:
    heater = in_fortran(ROOT / "examples" / "client" / "heater.f90")
    relays.append(Relaying(place, key, "--", heater))
    env = waiting(place, key)
    assert env.reset(seed=30)[0][0] == 50
    assert env.step(2)[0][0] > 50
    env.close()


def test_late_answers_mean_what_they_mean(place: str, key: Path, relays: list[Relaying]) -> None:
    """A program that never waits: nothing that it said is lost, and what it did instead is known."""
    steps = 500
    relays.append(Relaying(place, key, "--", str(compiled(HASTY)), "0", str(steps)))
    env = waiting(place, key)
    env.reset(seed=0)
    taken = 0
    for step in range(steps):
        seen, reward, over, _, info = env.step(0)
        assert (seen[0], over) == (step + 1, step == steps - 1)
        assert reward == (2.5 if TAKEN in info else 0.5)
        taken += info.get(TAKEN, 0) == 2
    assert info["late"] == taken > steps / 2
    env.close()


def test_a_program_that_crashes_is_lost_to_exarl(
    place: str, key: Path, relays: list[Relaying]
) -> None:
    relays.append(Relaying(place, key, "--", str(compiled(HASTY)), "10", "1000"))
    env = waiting(place, key)
    env.reset(seed=0)
    env.step(1)
    relays[0].process.terminate()
    with pytest.raises(EnvironmentFailure, match="is lost"):
        for _ in range(1000):
            env.step(1)
    assert relays[0].ends()[0] == 130
    env.close()


def test_programs_connect_one_after_the_other(
    place: str, key: Path, tmp_path: Path, relays: list[Relaying]
) -> None:
    address = f"unix:{tmp_path}/rig"
    relays.append(Relaying(place, key, "--listen", address))
    program = compiled(HASTY)
    for _ in range(2):
        process = subprocess.Popen([str(program), "10", "2", "0", address])
        env = waiting(place, key)
        env.reset(seed=1)
        assert [env.step(1)[2] for _ in range(2)] == [False, True]
        env.close()
        assert process.wait(10) == 0


def test_who_has_another_key_gets_nothing(
    place: str, key: Path, tmp_path: Path, relays: list[Relaying]
) -> None:
    other = tmp_path / "other.key"
    other.write_text(secrets.token_hex(32))
    other.chmod(0o600)
    stranger = Relaying(place, other, "--", str(compiled(HASTY)), "10", "2")
    relays.append(stranger)
    found: list[LoopEnv] = []
    thread = threading.Thread(target=lambda: found.append(waiting(place, key)), daemon=True)
    thread.start()
    code, told = stranger.ends()
    assert (code, told) == (2, f"exarl: {place}: it has another key\n")
    assert not found, "the stranger was let in"
    relays.append(Relaying(place, key, "--", str(compiled(HASTY)), "10", "2"))
    thread.join(30)
    assert found, "the owner of the key was not"
    found[0].close()


@pytest.mark.parametrize("seed", range(2))
def test_noise_at_the_relay_reaches_no_one(
    place: str, key: Path, tmp_path: Path, relays: list[Relaying], seed: int
) -> None:
    """What is no message ends the connection, and the next program is served."""
    rng, path = np.random.default_rng(seed), tmp_path / "rig"
    relays.append(Relaying(place, key, "--listen", f"unix:{path}"))
    listener = listen_at(place)
    assert relays[0].process.stdout is not None
    relays[0].process.stdout.readline()
    heard: list[bytes] = []

    def listen() -> None:
        for _ in range(2):
            stream = Stream(listener.accept()[0], key.read_bytes().strip(), listens=True)
            try:
                while True:
                    heard.append(stream.receive(10))
            except EOFError:
                stream.close()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    with socket.socket(socket.AF_UNIX) as noise:
        noise.connect(str(path))
        noise.sendall(b"EXRL"[: rng.integers(5)] + rng.bytes(int(rng.integers(30, 3000))))
        noise.shutdown(socket.SHUT_WR)
        noise.settimeout(10)
        assert noise.recv(100) == b""
    program = dial(f"unix:{path}", None)
    message = b"EXRL\x01\x07" + bytes(18)
    program.post(message)
    program.flush(5)
    program.close()
    thread.join(20)
    assert heard == [message]
    listener.close()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["relay"], "--to HOST:PORT is missing"),
        (["relay", "--to", "nowhere", "--", "x"], "--to is HOST:PORT"),
        (["relay", "--to", "127.0.0.1:9"], "behind --, or --listen"),
        (["relay", "--to", "127.0.0.1:9", "--listen", "127.0.0.1:8"], "a socket on this machine"),
        (["relay", "--to", "127.0.0.1:9", "--", "x"], "no key"),
    ],
)
def test_bad_words(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from exarl.cli.main import main

    monkeypatch.delenv("EXARL_JOIN_KEY", raising=False)
    assert main(words) == 2
    assert why in capsys.readouterr().err


def test_no_exarl_listens(place: str, key: Path, relays: list[Relaying]) -> None:
    relays.append(Relaying(place, key, "--retry", "0", "--", str(compiled(HASTY)), "10", "2"))
    code, told = relays[0].ends()
    assert code == 2 and told.startswith(f"exarl: no EXARL listens at {place}: ")
    with pytest.raises(ConfigError, match="needs a key"):
        os.environ.pop("EXARL_JOIN_KEY", None)
        make_env("ExaClient-v0", {"address": place})
