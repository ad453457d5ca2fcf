"""An environment in a process of its own is the same environment, and crashes alone."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from support.envs import DEEDS, Drift
from support.jobs import dead, wait_until
from support.learning import Scripted, adapter_of, assert_same_block, collect, through_storage

from exarl.acting.rollout import Rollout
from exarl.envs import make_env
from exarl.envs.base import described
from exarl.envs.context import make_context
from exarl.envs.episode import Episode
from exarl.envs.external.env import Timeouts
from exarl.envs.guard import Guard
from exarl.envs.isolation import isolate
from exarl.errors import ConfigError, EnvironmentFailure
from exarl.learning.exploration import Streams
from exarl.types import FAILURES

SUBJECTS = ("Drift", "KeptDrift", "Pushed", "Boxes", "Handful")


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    for name in SUBJECTS:
        gymnasium.register(f"{name}-v0", f"support.envs:{name}", max_episode_steps=50)
    yield
    for name in SUBJECTS:
        gymnasium.registry.pop(f"{name}-v0")


def episode_of(env: Any, kind: str = "discrete", **options: Any) -> Episode:
    return Episode(env, adapter_of(env, kind), 15, 5, 0, **options)


def played(episode: Episode, count: int, kind: str) -> list[Any]:
    rng = np.random.default_rng(2)
    seen = []
    for _ in range(count):
        action = rng.uniform(-1, 1, 1) if kind == "continuous" else int(rng.integers(3))
        observation, reward, terminated, truncated = episode.step(action)
        seen.append((np.array(observation).tolist(), reward, terminated, truncated))
        if terminated or truncated:
            seen.append(np.array(episode.begin()).tolist())
    return seen


@pytest.mark.parametrize("name", ["Drift", "KeptDrift", "Pushed", "Boxes"])
def test_it_is_the_same_environment(name: str) -> None:
    """Spaces, episodes, and an episode restored in the middle of it."""
    kind = "continuous" if name == "Pushed" else "discrete"
    (env, limit), (inner, same_limit) = isolate(f"{name}-v0", {}), make_env(f"{name}-v0", {})
    assert limit == same_limit == 50
    assert env.action_space == inner.action_space
    assert adapter_of(env, kind).spec == adapter_of(inner, kind).spec
    isolated, inline = episode_of(env, kind), episode_of(inner, kind)
    np.testing.assert_array_equal(isolated.begin(), inline.begin())
    assert played(isolated, 40, kind) == played(inline, 40, kind)
    stored, _ = through_storage(isolated.state())
    rest = played(inline, 20, kind)
    assert played(isolated, 20, kind) == rest
    isolated.restore(stored)
    assert isolated.restarts == 0
    assert played(isolated, 20, kind) == rest
    isolated.close()


@pytest.mark.parametrize(
    ("deed", "kind", "words"),
    [
        ("raise", "raise", "step: RuntimeError: the solver diverged"),
        ("segfault", "crash", "its process was killed by SIGSEGV in step"),
        ("exit", "crash", "its process ended with exit code 3 in step"),
        ("hang", "timeout", "step took more than step_timeout=0.3 s"),
        ("shape", "shape", r"shape \(2,\).*its space says \(3,\)"),
    ],
)
def test_every_failure_is_named(tmp_path: Path, deed: str, kind: str, words: str) -> None:
    out = tmp_path / "logs" / "env.out"
    env, _ = isolate("Handful-v0", {}, output=out, timeouts=Timeouts(step=0.3))
    env.reset(seed=0)
    env.step(DEEDS.index("nothing"))
    with pytest.raises(EnvironmentFailure, match=words) as caught:
        env.step(DEEDS.index(deed))
    assert caught.value.kind == kind
    if kind in ("crash", "timeout"):
        with pytest.raises(EnvironmentFailure, match="failed before"):
            env.step(0)
    if deed in ("raise", "segfault", "hang"):
        assert "in step" in out.read_text(), "where it was stands in its output"
    env.close()
    env.close()


def test_a_guarded_environment_comes_back_from_all_of_them() -> None:
    deeds = ["raise", "segfault", "hang", "nan", "shape", "huge"]

    class Order(Scripted):
        recorded = {}  # noqa: RUF012
        turn = 0

        def action(self, observations: np.ndarray, rng: Any = None, _: Any = None) -> Any:
            self.turn += 1
            deed = deeds[self.turn // 3 - 1] if self.turn % 3 == 0 else "nothing"
            return np.array([DEEDS.index(deed)]), {}

    def make() -> Any:
        return isolate("Handful-v0", {}, timeouts=Timeouts(step=0.4))[0]

    env = make()
    episode = episode_of(env, guard=Guard(make, 10))
    rollout = Rollout(Order(adapter_of(env).spec), [episode], Streams(5, [0]), 13)
    block = collect(rollout)
    kinds = dict(zip(FAILURES, block.failures[0, 1:].tolist(), strict=True))
    assert kinds == {"raise": 1, "crash": 1, "timeout": 1, "nan": 2, "shape": 1}
    assert np.isfinite(block.observations).all()
    assert len(set(block.observations[:, 0, 1].tolist())) == 7, "each time a process of its own"
    assert np.isin(block.actions, [0]).all()
    rollout.close()


def test_what_it_writes_goes_to_its_file_and_it_is_no_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PMI_RANK", "3")
    context = make_context(7, 2, 0, tmp_path / "envs" / "0007")
    out = tmp_path / "logs" / "env_0007.out"
    env, _ = isolate("Handful-v0", {}, context=context, output=out, who="environment 7")
    env.reset(seed=0)
    *_, info = env.step(DEEDS.index("print"))
    assert info == {}
    assert sorted(out.read_text().splitlines()) == [
        "hello from a child program",
        "hello, PMI_RANK is None",
    ]
    with pytest.raises(EnvironmentFailure, match=rf"environment 7: .*{out}"):
        env.step(DEEDS.index("segfault"))
    assert capfd.readouterr() == ("", "")


def test_nothing_is_left_of_it() -> None:
    """Neither its process, nor what that has started, nor a file in memory."""
    before = files_in_memory()
    for end, leaves in (("close", "sleeper"), ("hang", "daemon"), ("segfault", "daemon")):
        env, _ = isolate("Handful-v0", {}, timeouts=Timeouts(step=2.0))
        env.reset(seed=0)
        _, pid, started = env.step(DEEDS.index(leaves))[0].astype(int).tolist()
        assert not dead(pid) and not dead(started)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            os.kill(pid, number)  # its rank's affair: it may be asked for its state yet
        env.step(0)
        if end == "close":
            env.close()
        else:
            with pytest.raises(EnvironmentFailure):
                env.step(DEEDS.index(end))
        wait_until(lambda pids=(pid, started): all(map(dead, pids)), 10)
    assert files_in_memory() <= before


def files_in_memory() -> set[str]:
    """But for those of MPI jobs that run beside."""
    of_mpi = ("mpich_", "vader_segment", "sm_segment")
    return {name for name in os.listdir("/dev/shm") if not name.startswith(of_mpi)}  # noqa: PTH208


ORPHANS = """
import os, sys, gymnasium, signal
from support.envs import DEEDS
from exarl.envs.isolation import isolate
gymnasium.register("Handful-v0", "support.envs:Handful")
env, _ = isolate("Handful-v0", {})
env.reset(seed=0)
first = env.step(DEEDS.index("sleeper"))[0].astype(int)
seen = env.step(DEEDS.index("daemon"))[0].astype(int)
print(*first[1:], seen[2], flush=True)
env.step(DEEDS.index("hang"))
"""


def test_it_dies_with_its_rank_even_while_it_hangs(tmp_path: Path) -> None:
    rank = subprocess.Popen(
        [sys.executable, "-c", ORPHANS],
        stdout=subprocess.PIPE,
        text=True,
        # Its temporary folder outlives it.
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert rank.stdout is not None
    pids = [int(word) for word in rank.stdout.readline().split()]
    assert len(pids) == 3 and not any(map(dead, pids))
    rank.kill()
    rank.wait()
    rank.stdout.close()
    wait_until(lambda: all(map(dead, pids)), 10)


def test_a_partial_entry_point_is_made_with_its_arguments() -> None:
    """What the user gives wins over the partial's keywords, as it does in Gymnasium."""
    given: list[dict[str, float]] = [{}, {"far": 1e9}]
    partials = [(functools.partial(Drift, far=0.5), given), (functools.partial(Drift, 0.5), [{}])]
    for entry, parameters in partials:
        id = "PartialDrift-v0"
        gymnasium.register(id, entry, max_episode_steps=9)
        try:
            for kwargs in parameters:
                (env, limit), (inline, _) = isolate(id, kwargs), make_env(id, kwargs)
                assert limit == 9
                (one, _), (other, _) = env.reset(seed=3), inline.reset(seed=3)
                np.testing.assert_array_equal(one, other)
                ends = [env.step(1)[2] for _ in range(3)]
                assert ends == [inline.step(1)[2] for _ in range(3)]
                assert ends[-1] == (not kwargs)
                env.close()
        finally:
            gymnasium.registry.pop(id)


CRAMPED = """
import resource, gymnasium
from exarl.envs.isolation import isolate
from exarl.errors import ConfigError
gymnasium.register("Wide-v0", "support.envs:Wide")
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    isolate("Wide-v0", {})
except ConfigError as error:
    print(error)
"""


def test_too_little_shared_memory_is_one_line_and_no_bus_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRAMPED],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    (line,) = done.stdout.splitlines()
    assert line.startswith("env_isolation process needs 0.8 MB of shared memory"), done.stderr
    assert "File too large" in line


# -- what cannot be isolated ------------------------------------------------------------------------


def test_an_environment_that_cannot_be_made_says_why() -> None:
    with pytest.raises(ConfigError, match=r"Handful-v0' cannot be made.*3 numbers, not 4"):
        isolate("Handful-v0", {"size": 4})


def test_an_environment_that_no_other_python_can_find_is_refused() -> None:
    gymnasium.register("Lambda-v0", lambda: make_env("Drift-v0", {})[0])
    gymnasium.register("Local-v0", type("Local", (gymnasium.Env,), {"__module__": "__main__"}))
    try:
        for id in ("Lambda-v0", "Local-v0"):
            with pytest.raises(ConfigError, match=rf"'{id}'.*module that can be imported"):
                isolate(id, {})
    finally:
        gymnasium.registry.pop("Lambda-v0")
        gymnasium.registry.pop("Local-v0")


def test_an_isolated_rollout_gives_the_blocks_of_an_inline_one() -> None:
    def rollout(env: Any) -> Rollout:
        agent = Scripted(adapter_of(env).spec)
        return Rollout(agent, [episode_of(env)], Streams(5, [0]), 30)

    env, _ = isolate("ExaFaulty-v0", {"episode_steps": 7})
    one, other = rollout(env), rollout(make_env("ExaFaulty-v0", {"episode_steps": 7})[0])
    for _ in range(3):
        assert_same_block(collect(one), collect(other))
    one.close()


def test_what_an_environment_says_of_itself_comes_through() -> None:
    env, _ = isolate("ExaBoosterDiscrete-v0", {})
    inline, _ = make_env("ExaBoosterDiscrete-v0", {})
    try:
        assert described(env) == described(inline)
        assert "synthetic" in str(described(env))
    finally:
        env.close()
