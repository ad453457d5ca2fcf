"""What a program may offer beyond reset and step: its state, pictures, info, shared memory."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from support.envs import KeptDrift
from support.programs import cartpole, compiled, serving

from exarl.envs.base import can_snapshot, described
from exarl.envs.external.client import ClientEnv
from exarl.envs.external.env import ExternalEnv
from exarl.envs.external.extras import (
    Description,
    Extra,
    hello_arrays,
    info_arrays,
    read_extras,
    read_hello,
    read_info,
    with_extras,
)
from exarl.envs.external.host import Answering
from exarl.envs.external.protocol import (
    Kind,
    Message,
    ProtocolError,
    decode,
    encode,
    read_error,
    reset_message,
)
from exarl.envs.external.spaces import spaces_message
from exarl.envs.isolation import isolate
from exarl.errors import EnvironmentFailure

WALK = Path(__file__).with_name("walk.c")
PLAIN = spaces_message(spaces.Box(-1, 1, (2,)), spaces.Discrete(3))


class Speaking(KeptDrift):
    """A walk with pictures and info."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 7}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(far=np.inf)
        self.render_mode = render_mode

    def step(self, action: Any) -> Any:
        seen, reward, terminated, truncated, _ = super().step(action)
        info = {"energy": 2.5, "inside": np.bool_(True), "count": 3, "why": "text", "a\nb": 1}
        return seen, reward, terminated, truncated, info

    def render(self) -> Any:
        return np.full((2, 3, 3), 9, np.uint8)


SOLVER = f"""
import sys; sys.path[:] = {sys.path!r}
from test_extras import Speaking
from exarl.envs.external.host import host
host(Speaking("rgb_array"))
"""


@pytest.fixture
def speaking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words that start ``Speaking`` as a program."""
    script = tmp_path / "solver.py"
    script.write_text(SOLVER.replace("sys.path[:] =", f"sys.path[:] = [{str(WALK.parent)!r}] +"))
    return [sys.executable, str(script)]


@pytest.fixture(params=["program", "server"])
def env(request: pytest.FixtureRequest, speaking: list[str]) -> Iterator[ClientEnv]:
    if request.param == "program":
        made = ExternalEnv(" ".join(speaking))
        yield made
        made.close()
        return
    pytest.importorskip("zmq")
    from exarl.envs.external.remote import RemoteEnv

    with serving(speaking) as server:
        remote = RemoteEnv(server.address)
        yield remote
        remote.close()


def test_a_python_program_offers_what_its_environment_has(env: ClientEnv) -> None:
    assert can_snapshot(env)
    env.reset(seed=4)
    *_, info = env.step(1)
    assert info == {"energy": 2.5, "inside": 1.0, "count": 3.0}
    assert env.render_mode == "rgb_array"
    assert env.metadata == {"render_modes": ["rgb_array"], "render_fps": 7}
    np.testing.assert_array_equal(env.render(), np.full((2, 3, 3), 9, np.uint8))
    kept = env.get_state()
    after = [env.step(a)[0].tolist() for a in (1, -1, 0)]
    env.reset(seed=5)
    env.set_state(kept)
    assert [env.step(a)[0].tolist() for a in (1, -1, 0)] == after


def test_a_program_in_c_keeps_its_state_and_tells_numbers() -> None:
    one, other = ExternalEnv(compiled(WALK)), ExternalEnv(compiled(WALK))
    try:
        assert can_snapshot(one)
        assert one.reset(seed=5)[1] == {}
        assert one.step(2)[4] == {"steps": 1.0, "twice x": 14.0}
        kept = one.get_state()
        expected = one.step(1)
        other.reset(seed=0)
        other.set_state(kept)
        assert other.step(1) == expected
        with pytest.raises(EnvironmentFailure, match="a state of another size"):
            other.set_state({"state": np.zeros(3, np.uint8)})
    finally:
        one.close()
        other.close()


def test_a_program_that_offers_nothing_has_nothing() -> None:
    env = ExternalEnv(cartpole())
    try:
        assert not can_snapshot(env)
        assert described(env) == {}
        env.reset(seed=1)
        assert env.step(0)[4] == {}
        with pytest.raises(EnvironmentFailure, match="makes no pictures"):
            env.render()
        assert env.step(0)[1] == 1.0, "it is still there"
    finally:
        env.close()


def test_the_limit_of_an_episode_is_part_of_its_state() -> None:
    """Where the host keeps it, an episode that is restored ends when it would have."""
    limited = Answering(KeptDrift(far=np.inf), limit=4)
    ask(limited, Kind.HELLO, *hello_arrays(Extra.STATE))
    ask(limited, Kind.RESET, *reset_message(3).arrays)
    ends = [step(limited) for _ in range(2)]
    kept = ask(limited, Kind.GET_STATE).arrays
    ends += [step(limited) for _ in range(2)]
    assert ends == [False, False, False, True]
    ask(limited, Kind.RESET, *reset_message(3).arrays)
    ask(limited, Kind.SET_STATE, *kept)
    assert [step(limited) for _ in range(2)] == [False, True]


def ask(answering: Answering, kind: Kind, *arrays: np.ndarray) -> Message:
    answer = answering.to(encode(Message(kind, arrays, 7)))
    assert answer is not None
    return decode(answer)


def step(answering: Answering) -> bool:
    """Whether a step ended by the limit."""
    return bool(ask(answering, Kind.STEP, np.array(0)).arrays[2][1])


def test_a_time_limit_around_it_hides_the_state() -> None:
    answering = Answering(gymnasium.wrappers.TimeLimit(KeptDrift(), 5))
    answer = ask(answering, Kind.HELLO, *hello_arrays(Extra.STATE | Extra.INFO))
    assert read_extras(answer)[0] == Extra.INFO


def test_who_asks_for_no_extras_gets_the_messages_of_before() -> None:
    answering = Answering(Speaking("rgb_array"))
    assert len(ask(answering, Kind.HELLO).arrays) == 5
    ask(answering, Kind.RESET, *reset_message(3).arrays)
    assert len(ask(answering, Kind.STEP, np.array(0)).arrays) == 3
    for kind in (Kind.GET_STATE, Kind.RENDER):
        refused = ask(answering, kind)
        assert refused.kind is Kind.ERROR
        assert "not for this environment" in read_error(refused)[1]


def test_a_state_is_refused_before_the_first_reset() -> None:
    answering = Answering(KeptDrift())
    ask(answering, Kind.HELLO, *hello_arrays(Extra.STATE))
    assert "before the first RESET" in read_error(ask(answering, Kind.GET_STATE))[1]


def test_an_isolated_environment_gives_its_arrays_and_starts_again() -> None:
    gymnasium.register("KeptForExtras-v0", "support.envs:KeptDrift")
    try:
        env, _ = isolate("KeptForExtras-v0", {})
        env.reset(seed=3)
        assert set(env.get_state()) == {"at", "random"}
        env._program.kill()
        with pytest.raises(EnvironmentFailure, match="its process was killed by SIGKILL") as failed:
            env.step(0)
        assert failed.value.kind == "crash"
        with pytest.raises(EnvironmentFailure, match="failed before"):
            env.get_state()
        seen, _ = env.reset(seed=3)
        np.testing.assert_array_equal(seen, KeptDrift().reset(seed=3)[0])
        env.close()
    finally:
        gymnasium.registry.pop("KeptForExtras-v0")


def test_an_older_server_is_asked_without_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    """To one that knew none, a HELLO that holds anything was malformed."""
    pytest.importorskip("zmq")
    from exarl.envs.external import serve
    from exarl.envs.external.remote import RemoteEnv

    def strict(message: Message) -> tuple[Extra, str]:
        if message.arrays:
            raise ProtocolError("a HELLO holds nothing")
        return Extra(0), ""

    monkeypatch.setattr(serve, "read_hello", strict)
    with serving([cartpole()]) as server:
        env = RemoteEnv(server.address)
        assert env.reset(seed=1)[0].shape == (4,)
        env.close()


# -- the bytes ---------------------------------------------------------------------------------------


def test_a_hello_byte_by_byte() -> None:
    """Written down here from docs/external.md, not with the code under test."""
    expected = b"EXRL" + bytes([1, 1]) + b"\1\0" + bytes(8) + struct.pack("<Q", 16)
    expected += bytes([2, 0, 0, 0, 0, 0, 0, 0]) + struct.pack("<q", 7)
    wanted = Extra.STATE | Extra.RENDER | Extra.INFO
    assert encode(Message(Kind.HELLO, hello_arrays(wanted))) == expected
    assert read_hello(decode(expected)) == (wanted, "")


def test_what_is_offered_is_read() -> None:
    description = Description(50, "rgb_array", ["rgb_array"], 30.0, {"data": "synthetic"})
    message = decode(encode(with_extras(PLAIN, Extra.STATE | Extra.MEMORY, description)))
    assert read_extras(message) == (Extra.STATE | Extra.MEMORY, description)
    assert read_extras(PLAIN) == (Extra(0), Description())
    assert read_hello(Message(Kind.HELLO, hello_arrays(Extra.INFO, "ä"))) == (Extra.INFO, "ä")


@pytest.mark.parametrize(
    "more",
    [
        (np.array(1),),
        (np.array(1), np.frombuffer(b"{}", np.uint8), np.array(1)),
        (np.array(1.0), np.frombuffer(b"{}", np.uint8)),
        (np.array(1), np.frombuffer(b"{", np.uint8)),
        (np.array(1), np.frombuffer(b'{"about": 3}', np.uint8)),
        (np.array(1), np.zeros(2)),
    ],
)
def test_an_offer_that_is_none_is_refused(more: tuple[np.ndarray, ...]) -> None:
    with pytest.raises(ProtocolError):
        read_extras(PLAIN._replace(arrays=PLAIN.arrays + more))


@pytest.mark.parametrize(
    "arrays", [(np.zeros(2),), (np.array(1), np.array(1)), (np.array(1), np.zeros(1), np.zeros(1))]
)
def test_a_hello_that_is_none_is_refused(arrays: tuple[np.ndarray, ...]) -> None:
    with pytest.raises(ProtocolError):
        read_hello(Message(Kind.HELLO, arrays))


def test_info_is_numbers_and_their_names() -> None:
    info = {"reward parts/drag": -0.5, "n": 3, "done": True, "text": "no", "array": np.zeros(2)}
    expected = {"reward parts/drag": -0.5, "n": 3.0, "done": 1.0, "array.0": 0.0, "array.1": 0.0}
    assert read_info(info_arrays(info)) == expected
    assert info_arrays({"text": "no"}) == ()
    names, values = info_arrays(info)
    for wrong in ((names,), (names, values[:2]), (values, names), (names, values, names)):
        with pytest.raises(ProtocolError):
            read_info(wrong)
