"""Toy environments whose right answers are known."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl.learning.exploration import episode_seed
from exarl.types import Arrays

StepResult = tuple[Any, Any, bool, bool, dict[str, Any]]


class Counter(gymnasium.Env[Any, Any]):
    """Says where it is: the observation is [environment, episode, step].

    Episode e terminates after ``lengths[e % len(lengths)]`` steps (0: never). The reward is
    100 episode + step + 0.5 action. The episode's number is read off its seed, as the environment
    promises nothing else about episodes.
    """

    observation_space = spaces.Box(-1e6, 1e6, (3,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, env_id: int = 0, lengths: Sequence[int] = (3,), seed: int = 0) -> None:
        self._env_id = env_id
        self._lengths = lengths
        self._numbers = {episode_seed(seed, env_id, n): n for n in range(200)}
        self.closed = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        assert seed is not None, "every episode has a seed of its own"
        self._episode, self._step = self._numbers[seed], 0
        return self._seen(), {}

    def step(self, action: Any) -> StepResult:
        assert type(action) is int
        self._step += 1
        length = self._lengths[self._episode % len(self._lengths)]
        assert not length or self._step <= length, "stepped beyond the end of an episode"
        reward = 100 * self._episode + self._step + 0.5 * action
        return self._seen(), reward, self._step == length, False, {}

    def close(self) -> None:
        self.closed = True

    def _seen(self) -> np.ndarray:
        return np.array([self._env_id, self._episode, self._step], np.float64)


class Flaky(Counter):
    """Raises at the named (episode, step); step 0 is the reset."""

    def __init__(self, env_id: int, fails: Collection[tuple[int, int]], seed: int = 3) -> None:
        super().__init__(env_id, [6], seed)
        self._fails = fails

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        found = super().reset(**options)
        self._strike()
        return found

    def step(self, action: Any) -> StepResult:
        found = super().step(action)
        self._strike()
        return found

    def _strike(self) -> None:
        if (self._episode, self._step) in self._fails:
            raise RuntimeError("the solver diverged")


class Identity(gymnasium.Env[Any, Any]):
    """Episodes of one step; the observation names the action that is rewarded."""

    def __init__(self, n: int = 4) -> None:
        self.observation_space = spaces.Box(0, 1, (n,))
        self.action_space = spaces.Discrete(n)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._answer = int(self.np_random.integers(self.action_space.n))
        return self._seen(), {}

    def step(self, action: Any) -> StepResult:
        return self._seen(), float(action == self._answer), True, False, {}

    def _seen(self) -> np.ndarray:
        return np.eye(self.action_space.n, dtype=np.float32)[self._answer]


class Aim(gymnasium.Env[Any, Any]):
    """Episodes of one step; the observation is the action that is rewarded most."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._answer = self.np_random.uniform(-0.8, 0.8, 1).astype(np.float32)
        return self._answer, {}

    def step(self, action: Any) -> StepResult:
        return self._answer, -float(np.abs(action - self._answer)[0]), True, False, {}


class Constant(gymnasium.Env[Any, Any]):
    """Always the same observation and reward 1; terminates after ``length`` steps, or never.

    Its spaces may be ``like`` those of another toy.
    """

    def __init__(
        self, length: int | None = None, like: gymnasium.Env[Any, Any] | None = None
    ) -> None:
        self.observation_space = like.observation_space if like else spaces.Box(0, 1, (1,))
        self.action_space = like.action_space if like else spaces.Discrete(2)
        self._seen = np.ones(self.observation_space.shape, np.float32)
        self._length = length
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._steps = 0
        return self._seen, {}

    def step(self, action: Any) -> StepResult:
        self._steps += 1
        return self._seen, 1.0, self._steps == self._length, False, {}


class Drift(gymnasium.Env[Any, Any]):
    """A random walk pushed by its actions; it ends where it has drifted too far.

    It steps through a random stream that the seed of its episode starts, so an episode can be
    played again, but not entered in the middle.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(3, start=-1)

    def __init__(self, far: float = 4.0) -> None:
        self._far = far

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._at = self.np_random.normal(size=2)
        return self._at.copy(), {}

    def step(self, action: Any) -> StepResult:
        assert action in self.action_space
        self._at = self._at + 0.3 * action + self.np_random.normal(size=2)
        far = bool(np.abs(self._at).max() > self._far)
        return self._at.copy(), float(-np.abs(self._at).sum()), far, False, {}


class Pushed(Drift):
    """The same walk, pushed by a continuous action."""

    action_space = spaces.Box(-1, 1, (1,))


class KeptDrift(Drift):
    """The same walk, which can be entered in the middle; it counts how often it was stepped."""

    def __init__(self, far: float = 4.0) -> None:
        super().__init__(far)
        self.steps = 0

    def step(self, action: Any) -> StepResult:
        self.steps += 1
        return super().step(action)

    def get_state(self) -> Arrays:
        state = self.np_random.bit_generator.state["state"]
        words = [state[name] >> shift & MASK for name in ("state", "inc") for shift in (0, 64)]
        return {"at": self._at, "random": np.array(words, np.uint64)}

    def set_state(self, state: Arrays) -> None:
        low, high, inc_low, inc_high = state["random"].tolist()
        generator = self.np_random.bit_generator
        stream = {"state": high << 64 | low, "inc": inc_high << 64 | inc_low}
        generator.state = {**generator.state, "state": stream}
        self._at = state["at"]


MASK = 2**64 - 1


class Fickle(Drift):
    """Forgets its seed: no two episodes are alike. Refuses to step beyond an episode's end."""

    def __init__(self, far: float = 4.0) -> None:
        super().__init__(far)
        self._over = True

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._over = False
        return super().reset()

    def step(self, action: Any) -> StepResult:
        if self._over:
            raise RuntimeError("this episode is over")
        observation, reward, self._over, truncated, info = super().step(action)
        return observation, reward, self._over, truncated, info


class Broken(Drift):
    """A walk that breaks its contract at step ``at`` of every episode, in the named ``way``."""

    def __init__(self, way: str, at: int = 3, far: float = np.inf) -> None:
        super().__init__(far)
        self._way = way
        self._when = at
        self._count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._count = 0
        observation, info = super().reset(seed=seed)
        return (observation[:1], info) if self._way == "reset shape" else (observation, info)

    def step(self, action: Any) -> StepResult:
        observation, reward, terminated, truncated, info = super().step(action)
        self._count += 1
        if self._count == self._when:
            if self._way == "observation":
                observation = np.array([0.0, np.nan])
            elif self._way == "reward":
                reward = np.inf
            elif self._way == "last observation":
                observation, terminated = np.array([np.nan, 0.0]), True
            elif self._way == "shape":
                observation = observation[:1]
            elif self._way == "last shape":
                observation, terminated = observation[:1], True
            elif self._way == "raise":
                raise RuntimeError("the simulation diverged")
        return observation, reward, terminated, truncated, info


DEEDS = (
    *("nothing", "raise", "segfault", "exit", "hang", "shape", "nan", "print", "sleeper", "huge"),
    "daemon",
)
DAEMON = """
import os
if os.fork():
    os._exit(0)
os.setsid()
if pid := os.fork():
    print(pid, flush=True)
    os._exit(0)
os.dup2(os.open(os.devnull, os.O_RDWR), 1)
os.execvp("sleep", ["sleep", "3600"])
"""
"""Leaves a sleeping daemon: a process of another session, whose parent is gone; prints its number."""


class Handful(gymnasium.Env[Any, Any]):
    """Does what its action names in ``DEEDS``.

    Observation: how many steps were made, the process, and the one that it has started, if any.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(len(DEEDS))

    def __init__(self, size: int = 3, context: Any = None) -> None:
        if size != 3:
            raise ValueError(f"a handful has 3 numbers, not {size}")
        self.context = context
        self._started = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> StepResult:
        self._steps += 1
        deed, seen = DEEDS[action], self._seen()
        if deed == "raise":
            raise RuntimeError("the solver diverged")
        if deed == "segfault":
            ctypes.string_at(0)
        if deed == "exit":
            os._exit(3)
        while deed == "hang":
            time.sleep(3600)
        if deed == "print":
            subprocess.run(
                [sys.executable, "-c", "print('hello from a child program')"], check=True
            )
            sys.stdout.write(f"hello, PMI_RANK is {os.environ.get('PMI_RANK')}\n")
        if deed == "sleeper":
            self._started = subprocess.Popen(["sleep", "3600"]).pid
            seen = self._seen()
        if deed == "daemon":
            words = [sys.executable, "-I", "-S", "-c", DAEMON]
            self._started = int(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
            seen = self._seen()
        wrong = {"shape": seen[:2], "nan": seen * np.nan, "huge": seen * 1e300}
        return wrong.get(deed, seen), 0.5, False, False, {"dropped": True}

    def _seen(self) -> np.ndarray:
        return np.array([self._steps, os.getpid(), self._started], np.float64)


class Wide(Constant):
    """Observations of 800 kB."""

    def __init__(self) -> None:
        super().__init__(like=Identity())
        self.observation_space = spaces.Box(0, 1, (200_000,))
        self._seen = np.ones(200_000, np.float32)


class Boxes(gymnasium.Env[Any, Any]):
    """Spaces that are not plain: what is seen is a Dict, what is done a MultiDiscrete."""

    observation_space = spaces.Dict(
        {"place": spaces.Box(-9, 9, (2, 2), np.float64), "mode": spaces.Discrete(3, start=-1)}
    )
    action_space = spaces.MultiDiscrete([3, 2], start=[-1, 0])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._place = self.np_random.normal(size=(2, 2))
        return self._seen(0), {}

    def step(self, action: Any) -> StepResult:
        assert action in self.action_space, action
        self._place = self._place + action
        return self._seen(int(action[0])), float(action[1]), False, False, {}

    def _seen(self, mode: int) -> dict[str, Any]:
        return {"place": np.clip(self._place, -9, 9), "mode": np.int64(mode)}
