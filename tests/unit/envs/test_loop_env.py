"""ExaClient-v0: simulations and instruments that own their loop, and the library they use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from support.programs import CXX, ROOT, cartpole, compiled, in_fortran, pendulum

from exarl.envs import make_env
from exarl.envs.external.loop_client import ExaClient
from exarl.envs.external.loop_env import LoopEnv
from exarl.envs.taken import TAKEN
from exarl.errors import ConfigError, EnvironmentFailure, ExarlError

LINE = spaces.Box(-np.inf, np.inf, (1,), np.float64)
PUSH = spaces.Box(-2.0, 2.0, (1,), np.float64)
TURN = spaces.Discrete(3)


def at(value: float) -> np.ndarray:
    return np.array([value])


class Program(threading.Thread):
    """A client in a thread of this process; ``with Program(...)`` joins it and passes on its error."""

    def __init__(self, address: str, body: Callable[[ExaClient], None], **options: Any) -> None:
        super().__init__(daemon=True)
        self._address, self._body = address, body
        self._options = {"action_space": PUSH, **options}
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            with ExaClient(LINE, address=self._address, **self._options) as client:
                self._body(client)
        except BaseException as error:  # noqa: BLE001 - raised by the test's thread
            self.error = error

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exception: object) -> None:
        self.join(10)
        assert not self.is_alive()
        if self.error is not None and exception == (None, None, None):
            raise self.error


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/socket"


def waiting(address: str, **parameters: Any) -> Any:
    return make_env("ExaClient-v0", {"address": address, **parameters})[0].unwrapped


def walk(client: ExaClient) -> None:
    """Episodes of five steps along a line; the reward is the action, in two parts."""
    while client.begin_episode():
        x = 100.0 * (client.seed or 0)
        for _ in range(5):
            action = client.get_action(at(x))
            client.log_reward(action[0] / 2)
            client.log_reward(action[0] / 2)
            x += action[0]
        client.end_episode(at(x), truncated=True)


def test_the_calls_of_a_client_are_an_episode(address: str) -> None:
    with Program(address, walk):
        env = waiting(address)
        for seed in range(3):
            seen, _ = env.reset(seed=seed)
            steps = [env.step(at(0.5 + seed / 8)) for _ in range(5)]
            assert seen == 100 * seed
            np.testing.assert_array_equal(
                [step[0][0] for step in steps], 100 * seed + (0.5 + seed / 8) * np.arange(1, 6)
            )
            assert [step[1] for step in steps] == [0.5 + seed / 8] * 5
            assert [step[2:4] for step in steps] == [(False, False)] * 4 + [(False, True)]
            assert all(TAKEN not in step[4] for step in steps)
        env.close()


def test_a_late_answer_is_replaced_by_the_fallback_and_recorded_so(address: str) -> None:
    """What was missed is made up for: each transition holds the action that was really taken."""
    in_time: list[bool] = []
    go_on = threading.Event()

    def impatient(client: ExaClient) -> None:
        assert client.begin_episode()
        for step in range(6):
            late = step in (1, 2, 4)
            action = client.get_action(at(step), timeout=0.01 if late else 10, fallback=at(-1.5))
            in_time.append(client.in_time)
            assert action == (-1.5 if late else step + 1)
            client.log_reward(10 * step)
            if step in {2, 4}:
                go_on.set()
        client.end_episode(at(6))
        assert not client.begin_episode()

    with Program(address, impatient):
        env = waiting(address)
        seen, _ = env.reset(seed=0)
        known = [seen[0]]
        for step in range(6):
            if step in (1, 4):  # the learner is busy
                go_on.wait(5)
                go_on.clear()
            seen, reward, terminated, _, info = env.step(at(step + 1.0))
            known.append(seen[0])
            assert reward == 10 * step
            assert terminated is (step == 5)
            assert info.get(TAKEN, None) == (at(-1.5) if step in (1, 2, 4) else None)
        env.close()
    assert known == [*range(7)]
    assert in_time == [True, False, False, True, False, True]


def test_an_action_of_the_clients_own(address: str) -> None:
    def operated(client: ExaClient) -> None:
        while client.begin_episode():
            client.log_action(at(0), 2)
            client.log_reward(1)
            client.log_info(pressure=3.5)
            assert client.get_action(at(1)) == 0
            client.end_episode(at(2))

    with Program(address, operated, action_space=TURN):
        env = waiting(address)
        for seed in range(3):
            env.reset(seed=seed)
            first, second = env.step(1), env.step(0)
            assert first[1] == 1
            assert first[4] == {"pressure": 3.5, TAKEN: 2}
            assert second[1:] == (0, True, False, {})
        env.close()


def test_thousands_of_observations_wait_for_a_slow_learner(address: str) -> None:
    """An instrument is not held up, however long no one reads."""
    done = threading.Event()

    def quick(client: ExaClient) -> None:
        assert client.begin_episode()
        for step in range(3000):
            client.log_action(at(step), at(step % 2))
        done.set()
        client.end_episode(at(3000), truncated=True)
        assert not client.begin_episode()

    with Program(address, quick):
        env = waiting(address)
        env.reset()
        assert done.wait(20)
        for step in range(3000):
            seen, _, _, cut, info = env.step(at(0))
            assert (seen[0], info[TAKEN][0], cut) == (step + 1, step % 2, step == 2999)
        env.close()


def test_a_cut_episode_goes_on_in_a_client_that_has_connected(address: str) -> None:
    with Program(address, walk):
        env = waiting(address)
        env.reset(seed=1)
        env.step(at(0.5))
        assert env.reset(seed=2)[0] == 100.5
        for _ in range(4):
            seen, *_, cut, _ = env.step(at(1))
        assert (seen[0], cut) == (104.5, True)
        assert env.reset(seed=2)[0] == 200
        env.close()


def test_clients_come_and_go_between_episodes(address: str) -> None:
    def once(client: ExaClient) -> None:
        assert client.begin_episode()
        client.get_action(at(0))
        client.end_episode(at(1))

    first = Program(address, once)
    env = waiting(address)
    env.reset()
    assert env.step(at(1))[2]
    with first, Program(address, once):
        env.reset()
        assert env.step(at(1))[2]
    env.close()


def test_a_client_that_is_lost_is_a_crash(address: str) -> None:
    def lost(client: ExaClient) -> None:
        assert client.begin_episode()
        client.get_action(at(0))

    with Program(address, lost):
        env = waiting(address)
        env.reset()
        with pytest.raises(EnvironmentFailure, match="is lost") as caught:
            env.step(at(1))
        assert caught.value.kind == "crash"
    env.close()


def test_a_client_that_is_silent_is_late(address: str) -> None:
    end = threading.Event()

    def silent(client: ExaClient) -> None:
        assert client.begin_episode()
        client.get_action(at(0))
        assert end.wait(5)

    with Program(address, silent):
        env = waiting(address, timeout=0.1)
        env.reset()
        with pytest.raises(EnvironmentFailure, match=r"no answer within 0\.1 s") as caught:
            env.step(at(1))
        end.set()
        assert caught.value.kind == "timeout"
    env.close()


def test_over_a_network_with_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from exarl.envs.context import free_port

    monkeypatch.delenv("EXARL_JOIN_KEY", raising=False)
    place, key = f"127.0.0.1:{free_port(os.getpid())}", tmp_path / "join.key"
    with pytest.raises(ConfigError, match="needs a key"):
        waiting(place)
    threading.Timer(0.2, lambda: others.append(refused())).start()
    others: list[str] = []

    def refused() -> str:
        other = tmp_path / "other.key"
        other.touch(0o600)
        other.write_text("x" * 40)
        try:
            ExaClient(LINE, PUSH, address=place, key_file=other)
        except ConfigError as error:
            return str(error)
        return "let in"

    def late() -> None:
        while not key.exists() or not others:
            time.sleep(0.01)
        with Program(place, walk, key_file=key):
            pass

    right = threading.Thread(target=late)
    right.start()
    env = waiting(place, key_file=str(key))
    assert env.reset(seed=3)[0] == 300
    assert env.step(at(0.25))[:2] == (at(300.25), 0.25)
    env.close()
    right.join(10)
    assert "another key" in others[0]
    assert key.stat().st_mode & 0o077 == 0


def test_calls_in_the_wrong_order(address: str) -> None:
    def wrong(client: ExaClient) -> None:
        with pytest.raises(ExarlError, match="within an episode"):
            client.get_action(at(0))
        assert client.begin_episode()
        with pytest.raises(ExarlError, match="end_episode before get_action"):
            client.end_episode(at(0))
        with pytest.raises(ValueError, match="needs a fallback"):
            client.get_action(at(0), timeout=1)
        client.get_action(at(0))
        with pytest.raises(ExarlError, match="begin_episode before end_episode"):
            client.begin_episode()
        client.end_episode(at(0))

    with Program(address, wrong):
        env = waiting(address)
        env.reset()
        env.step(at(0))
        env.close()


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, "'command' .* or 'address'"),
        ({"command": "x", "address": "unix:y"}, "'command' .* or 'address'"),
        ({"address": "nowhere"}, "address is HOST:PORT"),
        ({"command": "x", "timeout": 0}, "timeout is a number of seconds above 0"),
        ({"address": "unix:/nowhere/s"}, "cannot listen"),
    ],
)
def test_bad_parameters(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_env("ExaClient-v0", parameters)


def test_a_program_without_the_library_is_refused() -> None:
    with pytest.raises(ConfigError, match="train it with ExaExternal-v0"):
        make_env("ExaClient-v0", {"command": cartpole()})


def test_no_one_listens(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no EXARL listens"):
        ExaClient(LINE, PUSH, address=f"unix:{tmp_path}/none", patience=0.0)


def hasty(limit: float, steps: int, pause_ms: int = 0, address: str = "") -> str:
    """The command of a program in C that cannot wait."""
    program = compiled(Path(__file__).with_name("hasty.c"))
    return f"{program} {limit} {steps} {pause_ms} {address}".rstrip()


def started(command: str) -> LoopEnv:
    made = make_env("ExaClient-v0", {"command": command})[0].unwrapped
    assert isinstance(made, LoopEnv)
    return made


def test_a_program_in_c_that_waits() -> None:
    """A cut episode is begun again, in a new process and by its seed."""
    env = started(hasty(-1, 3))
    assert env.describe() == {"reward": 'in "units" of C:\\', "observation": "counts steps"}
    for steps in (3, 1, 3):
        assert env.reset(seed=0)[0] == 0
        for step in range(steps):
            seen, reward, over, cut, info = env.step(step)
            assert (seen[0], reward, over, cut) == (step + 1, step + 0.5, step == 2, False)
            assert info == ({"late": 0} if over else {})
    env.close()


@pytest.mark.parametrize("ahead", ["", "-DEXARL_AHEAD=10000"])
def test_a_program_in_c_that_cannot_wait(tmp_path: Path, ahead: str) -> None:
    """Far more than a socket holds; nothing of it is lost, also when it is held up in the end."""
    steps, command = 2000, hasty(0, 2000)
    if ahead:
        source = tmp_path / "narrow.c"
        source.write_text(Path(__file__).with_name("hasty.c").read_text())
        command = f"{compiled(source, flags=('-std=c99', '-Wall', ahead))} 0 {steps}"
    env = started(command)
    env.reset(seed=0)
    time.sleep(0.1)
    taken = 0
    for step in range(steps):
        seen, reward, over, _, info = env.step(0)
        assert seen[0] == step + 1
        assert over is (step == steps - 1)
        assert reward == (2.5 if TAKEN in info else 0.5)
        taken += info.get(TAKEN, 0) == 2
    assert taken > steps / 2
    assert info["late"] == taken
    env.close()


def test_a_program_in_c_connects_by_itself(address: str) -> None:
    process = subprocess.Popen(hasty(10, 2, 0, address).split())
    env = waiting(address)
    for seed in range(2):
        env.reset(seed=seed)
        assert [env.step(1)[2] for _ in range(2)] == [False, True]
    env.close()
    assert process.wait(10) == 0


def test_the_pendulum_in_c_is_gymnasiums() -> None:
    """As it is with one of its time steps to an action; here they are shorter."""
    env, other = started(pendulum()), PendulumEnv()
    other.dt /= 10
    for seed in range(2):
        seen, _ = env.reset(seed=seed)
        other.reset(seed=0)
        other.state = np.array([np.arctan2(seen[1], seen[0]), seen[2]])
        for _ in range(100):
            action = env.action_space.sample()
            seen, reward, *_ = env.step(action)
            rewards = [other.step(action)[1] for _ in range(10)]
            assert reward == pytest.approx(rewards[0], abs=2e-3)
            np.testing.assert_allclose(seen, other._get_obs(), atol=2e-3)
    env.close()


@pytest.mark.skipif(CXX is None, reason="no C++ compiler")
def test_the_header_in_cplusplus(tmp_path: Path) -> None:
    source = tmp_path / "as_cplusplus.cpp"
    source.write_text(Path(__file__).with_name("hasty.c").read_text())
    program = compiled(source, CXX, ("-std=c++11", "-Wall", "-Wextra", "-Werror"))
    env = started(f"{program} -1 2")
    env.reset()
    assert env.step(1)[1] == 1.5
    env.close()


def test_the_heater_in_fortran() -> None:
    env = started(in_fortran(ROOT / "examples" / "client" / "heater.f90"))
    known = "temperature in degrees Celsius, level of the water"
    assert env.describe() == {"reward": "10 K s", "observation": known}
    for power in (0, 2):
        temperature = env.reset(seed=30)[0][0]
        assert temperature == 50
        for _ in range(200):
            seen, reward, over, cut, _ = env.step(power)
            assert bool(seen[0] > temperature) is (power == 2)
            assert -4.3 < reward <= 0
            temperature = seen[0]
        assert (over, cut) == (False, True)
    env.close()


def test_the_thermostat_in_python_cannot_wait() -> None:
    env = started(f"{sys.executable} {ROOT / 'examples' / 'client' / 'thermostat.py'}")
    env.reset(seed=0)
    for step in range(100):
        if step == 50:
            time.sleep(0.1)  # about 20 decisions
        *_, cut, info = env.step(np.array([0.5]))
        if 52 < step < 62:
            assert TAKEN in info
    assert cut
    assert info["late"] >= 10
    env.close()
