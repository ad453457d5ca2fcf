"""What EXARL is attacked with: an agent that remembers, environments that count and that misbehave.

``--agent benchmarks.attack.subjects:Memory-v0 --env benchmarks.attack.subjects:Counted-v0``
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from exarl import agents
from exarl.agents.base import ExaAgent, MakeNetwork, Team
from exarl.config import param
from exarl.envs.context import EnvContext
from exarl.learning.exploration import (
    LEARNER,
    Streams,
    epsilon_greedy,
    generator,
    json_state,
    restore_state,
)
from exarl.types import Arrays, Block, EnvSpec, Metrics

HERE = __name__
AGENT, COUNTED, BAD = f"{HERE}:Memory-v0", f"{HERE}:Counted-v0", f"{HERE}:Bad-v0"


@dataclass(frozen=True)
class MemoryConfig:
    """Parameters of the agent."""

    learning_rate: float = param(0.01, "step size", gt=0)
    epsilon: float = param(0.3, "exploration", ge=0, le=1)


class Memory(ExaAgent):
    """A linear agent in NumPy that remembers every step it was trained on, alone or in a team."""

    Config = MemoryConfig
    action_kind = "discrete"
    metrics = ("loss",)
    learns_in_team = True

    def __init__(
        self, spec: EnvSpec, config: MemoryConfig, network: MakeNetwork, seed: int
    ) -> None:
        super().__init__(spec, config, network, seed)
        assert spec.n_actions is not None
        shape = (spec.observation.shape[0], spec.n_actions)
        self._table = generator(seed, LEARNER, 0).normal(size=shape).astype(np.float32)

    def action(
        self, observations: np.ndarray, rng: Streams | None = None
    ) -> tuple[np.ndarray, Arrays]:
        values = scaled(observations) @ self._table
        if rng is None:
            return values.argmax(-1), {}
        return epsilon_greedy(np, values, self.config.epsilon, rng.uniform(2)), {}

    def set_weights(self, weights: np.ndarray) -> None:
        self._table = np.array(weights, np.float32).reshape(self._table.shape)

    _team: Team | None = None

    def join_team(self, team: Team) -> None:
        self._team = team

    def set_learner(self) -> None:
        self._rng = generator(self.seed, LEARNER, 1)
        self._seen = [np.zeros((0, 2), np.int64)]

    def train(self, block: Block) -> Metrics:
        return self.train_in_team(block, block.steps)

    def train_in_team(self, block: Block | None, steps: int) -> Metrics:
        slope = np.zeros_like(self._table)
        loss: Metrics = {}
        if block is not None:
            after = block.next_observations()
            after = after.reshape(-1, after.shape[-1])
            self._seen.append(after[:, :2].astype(np.int64))
            slope, error = self._slope(block, scaled(after))
            loss = {"loss": error}
        if self._team is not None:
            mean = self._team.average(slope.reshape(-1), float(block is not None))
            slope = mean.reshape(slope.shape)
        self._table = self._table + np.float32(self.config.learning_rate) * slope
        return {"updates": 1, **loss}

    def _slope(self, block: Block, after: np.ndarray) -> tuple[np.ndarray, float]:
        """A direction that depends on the block, the table and the random stream."""
        before = scaled(block.observations[:-1]).reshape(after.shape)
        taken, rows = block.actions.reshape(-1), np.arange(len(after))
        target = block.rewards.reshape(-1) + 0.9 * (after @ self._table).max(-1)
        errors = target - (before @ self._table)[rows, taken]
        errors *= self._rng.random(len(errors)) < 0.5
        slope = np.zeros_like(self._table)
        np.add.at(slope.T, taken, (errors[:, None] * before / len(after)).astype(np.float32))
        return slope, float((errors**2).mean())

    def get_weights(self) -> np.ndarray:
        return self._table.reshape(-1).copy()

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        seen = np.concatenate(self._seen)
        return {"weights": self.get_weights(), "seen": seen}, {"rng": json_state(self._rng)}

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        self.set_weights(arrays["weights"])
        self._seen = [arrays["seen"]]
        if "rng" in numbers:
            restore_state(self._rng, numbers["rng"])


def scaled(observations: np.ndarray) -> np.ndarray:
    """Observations without the numbers that name environment and step."""
    found = np.array(observations, np.float32)
    found[..., :2] = 1.0
    return found


class Counted(gymnasium.Env[Any, Any]):
    """A random walk whose observation begins with the environment's number and its count of steps.

    The count goes on over episodes and is in the state, which is padded to ``state_kb`` KiB.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form
    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(
        self, state_kb: int = 0, step_s: float = 0.0, context: EnvContext | None = None
    ) -> None:
        self._number = context.index if context is not None else 0
        self._padding = np.zeros(state_kb << 10, np.uint8)
        self._step_s = step_s
        self._count = 0
        self._at = np.zeros(2)

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._at = self.np_random.normal(size=2)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._step_s:
            time.sleep(self._step_s)
        self._count += 1
        self._at = 0.9 * self._at + 0.3 * self.np_random.normal(size=2) + 0.1 * (2 * action - 1)
        chance = self.np_random.random()
        reward = -float(np.abs(self._at).sum())
        return self._observation(), reward, chance < 0.03, chance > 0.98, {}

    def _observation(self) -> np.ndarray:
        return np.array([self._number, self._count, *self._at], np.float32)

    def get_state(self) -> Arrays:
        stream = self.np_random.bit_generator.state["state"]
        words = [
            (stream[name] >> 64 * i) & (2**64 - 1) for name in ("state", "inc") for i in (0, 1)
        ]
        return {
            "count": np.array(self._count),
            "at": self._at.copy(),
            "stream": np.array(words, np.uint64),
            "padding": self._padding,
        }

    def set_state(self, state: Arrays) -> None:
        self._count, self._at = int(state["count"]), np.array(state["at"])
        low, high, inc_low, inc_high = map(int, state["stream"])
        found = self.np_random.bit_generator.state
        found["state"] = {"state": high << 64 | low, "inc": inc_high << 64 | inc_low}
        self.np_random.bit_generator.state = found


class Unprintable(Exception):
    """An error that cannot be told."""

    def __str__(self) -> str:
        raise RuntimeError("no words for it")

    __repr__ = __str__


class Bad(Counted):
    """``Counted`` that does ``way`` at step ``at`` of a life, up to ``times`` times in all.

    What it has done is written to ``done`` in its work folder, one character each time.
    """

    def __init__(
        self,
        way: str = "raise",
        at: int = 20,
        times: int = 1,
        context: EnvContext | None = None,
    ) -> None:
        super().__init__(0, 0.0, context)
        self._way, self._due, self._times = way, at, times
        self._book = (context.work_dir if context is not None else Path()) / "done"
        self._steps = 0
        if way == "make":
            self._misbehave(False)

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        if self._way == "reset" and self._steps:
            self._misbehave(False)
        found = super().reset(seed=seed, options=options)
        if self._way == "reset_nan" and self._steps and self._turn():
            return np.full(4, np.nan, np.float32), {}
        return found

    def step(self, action: Any) -> Any:
        self._steps += 1
        result = super().step(action)
        if self._way in ("reset", "reset_nan", "make", "close_raises", "close_hangs", "get_state"):
            return result
        if self._steps >= self._due:
            return self._misbehave(result)
        return result

    def close(self) -> None:
        if self._way == "close_raises":
            raise RuntimeError("close failed")
        if self._way == "close_hangs":
            time.sleep(3600)
        super().close()

    def get_state(self) -> Arrays:
        if self._way == "get_state" and self._steps >= self._due:
            self._misbehave(False)
        return super().get_state()

    def _turn(self) -> bool:
        """Whether it is to misbehave now, which is then written down."""
        done = self._book.stat().st_size if self._book.exists() else 0
        if done < self._times:
            with self._book.open("a") as file:
                file.write("x")
        return done < self._times

    def _misbehave(self, result: Any) -> Any:
        if not self._turn():
            return result
        self._steps = 0
        if self._way in RESULTS:
            return RESULTS[self._way](*result)
        if self._way in DEEDS:
            DEEDS[self._way]()
            return result
        raise RuntimeError("the solver diverged")


def chdir() -> None:
    if Path.cwd().name != "elsewhere":
        Path("elsewhere").mkdir()
        os.chdir("elsewhere")


def leave_thread() -> None:
    threading.Thread(target=time.sleep, args=(3600,), daemon=False).start()


def fork_daemon() -> None:
    """A process that leaves its parent and its session."""
    sleeper = "import time; time.sleep(3600)"
    start = f"subprocess.Popen([sys.executable, '-c', {sleeper!r}], start_new_session=True)"
    code = f"import subprocess, sys; {start}"
    subprocess.run([sys.executable, "-c", code], check=True, start_new_session=True)


def recurse() -> None:
    recurse()


def unprintable() -> None:
    raise Unprintable


def interrupt_group() -> None:
    raise ExceptionGroup("two at once", [ValueError("one"), OSError("two")])


def out_of_memory() -> None:
    raise MemoryError


def talk() -> None:
    for _ in range(2000):
        sys.stdout.write("noise " * 10 + "\n")
        sys.stderr.write("noise\n")


DEEDS: dict[str, Callable[[], Any]] = {
    "exit_0": lambda: sys.exit(0),
    "exit_3": lambda: sys.exit(3),
    "exit_word": lambda: sys.exit("the solver gave up"),
    "unprintable": unprintable,
    "group": interrupt_group,
    "recursion": recurse,
    "no_memory": out_of_memory,
    "segfault": lambda: ctypes.string_at(0),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "abort": os.abort,
    "os_exit_0": lambda: os._exit(0),
    "os_exit_3": lambda: os._exit(3),
    "hang": lambda: time.sleep(3600),
    "chdir": chdir,
    "thread": leave_thread,
    "daemon": fork_daemon,
    "talk": talk,
    "ignore_sigterm": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "close_stdout": lambda: os.close(1),
    "variables": os.environ.clear,
    "seed": lambda: np.random.seed(0),
}
RESULTS: dict[str, Callable[..., Any]] = {
    "nan": lambda seen, *rest: (seen * np.float32("nan"), *rest),
    "nan_reward": lambda seen, _, *rest: (seen, float("nan"), *rest),
    "inf_reward": lambda seen, _, *rest: (seen, float("inf"), *rest),
    "big_reward": lambda seen, _, *rest: (seen, 1e300, *rest),
    "shape": lambda seen, *rest: (seen[:3], *rest),
    "more_dims": lambda seen, *rest: (seen[None], *rest),
    "words": lambda seen, *rest: (np.array(["a", "b", "c", "d"]), *rest),
    "objects": lambda seen, *rest: (np.array([None] * 4), *rest),
    "nothing": lambda *_: None,
    "none_seen": lambda seen, *rest: (None, *rest),
    "none_reward": lambda seen, _, *rest: (seen, None, *rest),
    "vector_reward": lambda seen, _, *rest: (seen, np.zeros(3), *rest),
    "four": lambda *result: result[:4],
    "six": lambda *result: (*result, 1),
    "double": lambda seen, *rest: (seen.astype(np.float64), *rest),
    "huge_info": lambda *result: (*result[:4], {"field": np.zeros(1 << 24, np.uint8)}),
    "odd_info": lambda *result: (*result[:4], {1: object(), "f": lambda: None}),
    "late_seen": lambda seen, *rest: (seen.tolist(), *rest),
}

agents.register("Memory-v0", Memory)
gymnasium.register("Counted-v0", f"{HERE}:Counted")
gymnasium.register("Bad-v0", f"{HERE}:Bad")
