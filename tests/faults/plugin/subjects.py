"""Environments and an agent for tests of whole jobs, which fail, pause and keep books on demand.

What they are to do stands as JSON in the environment variable SUBJECT, not in the configuration, so
that a run that is resumed without it goes on as if nothing had been. With this folder on the path
the agents plug in as those of a third-party package do, and bring the environments along:
``--agent Linear-v0 --env Replayed-v0``.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from exarl.agents.base import ExaAgent, MakeNetwork, Team
from exarl.agents.dqn import DQN
from exarl.config import param
from exarl.learning.exploration import (
    LEARNER,
    Streams,
    epsilon_greedy,
    generator,
    json_state,
    restore_state,
)
from exarl.types import Arrays, Block, EnvSpec, Metrics
from exarl.workflows import together

RANK = int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")))


@dataclass(frozen=True)
class Orders:
    """What is to happen, on which rank and when; nothing by default."""

    folder: str = "."  # marks and books go here
    fault: str = ""  # raise | exit | kill | pause | diverge (in train or round)
    then: str = ""  # what follows a pause, if anything
    place: str = "step"  # make | step | train | round (of several learners)
    rank: int = 0
    at: int = 1  # the call that is struck, counted from 1 in each environment or agent
    once: bool = False  # not again in a job that is started again
    delay: float = 0.0  # seconds that each step sleeps
    delay_from: int = 1  # the first step that does
    record: bool = False  # write down every call
    slow_close: bool = False  # close() waits for the whole group
    chdir: str = ""  # environments go to this folder, and stay there


@functools.cache
def orders() -> Orders:
    return Orders(**json.loads(os.environ.get("SUBJECT", "{}")))


def strike(place: str, count: int) -> bool:
    """Fail or pause here if that was ordered, leaving the file ``struck`` first; True: diverge."""
    order = orders()
    if not order.fault or (place, RANK, count) != (order.place, order.rank, order.at):
        return False
    mark = Path(order.folder, "struck")
    if order.once and mark.exists():
        return False
    mark.touch()
    if order.fault == "pause":
        while not Path(order.folder, "go").exists():
            time.sleep(0.02)
    fail(order.then or order.fault)
    return order.fault == "diverge"


def fail(fault: str) -> None:
    if fault == "raise":
        raise RuntimeError("the solver diverged")
    if fault == "exit":
        sys.exit("the solver gave up")
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


class Replayed(CartPoleEnv):
    """CartPole over a group of ranks, without snapshots."""

    made = 0

    def __init__(self, comm: Any = None, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)
        self._comm = comm
        self._slot = Replayed.made
        Replayed.made += 1
        self._calls = 0
        if orders().chdir:
            os.chdir(orders().chdir)
        self._record("make", None if comm is None else [comm.rank, comm.size])
        strike("make", Replayed.made)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._record("reset", seed)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._calls += 1
        self._record("step", int(action))
        strike("step", self._calls)
        if orders().delay and self._calls >= orders().delay_from:
            time.sleep(orders().delay)
        if self._comm is not None and self._comm.size > 1:
            self._meet()
        return super().step(action)

    def close(self) -> None:
        self._record("close", None)
        if orders().slow_close and self._comm is not None:
            self._comm.Barrier()
        super().close()

    def _meet(self) -> None:
        """A collective call in which a missing member would be missed."""
        mine, sums = np.array([1.0, self._comm.rank]), np.empty(2)
        self._comm.Allreduce(mine, sums)
        size = self._comm.size
        if sums.tolist() != [size, size * (size - 1) / 2]:
            raise RuntimeError(f"the group summed up to {sums}")

    def _record(self, call: str, argument: Any) -> None:
        if orders().record:
            path = Path(orders().folder, f"calls_{RANK}_{self._slot}.jsonl")
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([call, argument]) + "\n")


class Kept(Replayed):
    """The same with snapshots, of which every member has a part of its own."""

    def get_state(self) -> Arrays:
        past = -1 if self.steps_beyond_terminated is None else self.steps_beyond_terminated
        return {
            "state": np.array(self.state, np.float64),
            "past_end": np.array(past),
            "member": np.array(self._member()),
        }

    def set_state(self, state: Arrays) -> None:
        self._record("set_state", int(state["member"]))
        if int(state["member"]) != self._member():
            raise RuntimeError("this is the state of another member")
        self.state = tuple(state["state"].tolist())  # type: ignore[assignment]
        past = int(state["past_end"])
        self.steps_beyond_terminated = None if past < 0 else past  # type: ignore[assignment]

    def _member(self) -> int:
        return 0 if self._comm is None else int(self._comm.rank)


class Bulky(Kept):
    """The same with a state that no MPI library sends before it is asked for."""

    def get_state(self) -> Arrays:
        return super().get_state() | {"ballast": np.zeros(1 << 16, np.uint8)}


class Numbered(gymnasium.Env[Any, Any]):
    """Its observation is its number in the run and how many steps it has ever made, over all
    episodes; steps take up to a millisecond."""

    observation_space = gymnasium.spaces.Box(0, 1e6, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    made = 0

    def __init__(self) -> None:
        self._number = 100 * RANK + Numbered.made
        Numbered.made += 1
        self._steps = 0
        self._random = np.random.default_rng(self._number)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        strike("step", self._steps)
        time.sleep(self._random.uniform(0, 1e-3))
        return self._seen(), 0.0, False, False, {}

    def get_state(self) -> Arrays:
        return {"numbered": np.array([self._number, self._steps])}

    def set_state(self, state: Arrays) -> None:
        self._number, self._steps = state["numbered"].tolist()

    def _seen(self) -> np.ndarray:
        return np.array([self._number, self._steps], np.float32)


gymnasium.register("Replayed-v0", "subjects:Replayed", max_episode_steps=500)
gymnasium.register("Kept-v0", "subjects:Kept", max_episode_steps=500)
gymnasium.register("Bulky-v0", "subjects:Bulky", max_episode_steps=500)
gymnasium.register("Numbered-v0", "subjects:Numbered", max_episode_steps=20)


class Deep(DQN):
    """DQN itself, under a name that brings the environments of this file along."""


@dataclass(frozen=True)
class LinearConfig:
    """Parameters of the linear agent."""

    learning_rate: float = param(0.01, "step size", gt=0)
    gamma: float = param(0.95, "discount factor", ge=0, le=1)
    epsilon: float = param(0.2, "exploration", ge=0, le=1)


class Linear(ExaAgent):
    """Q-learning on a linear function, in NumPy alone: a whole run takes a second."""

    Config = LinearConfig
    action_kind = "discrete"
    metrics = ("loss",)

    def __init__(self, spec: EnvSpec, config: Any, network: MakeNetwork, seed: int) -> None:
        super().__init__(spec, config, network, seed)
        assert spec.n_actions is not None
        shape = (spec.observation.shape[0], spec.n_actions)
        self._table = generator(seed, LEARNER, 0).normal(size=shape).astype(np.float32)

    def action(
        self, observations: np.ndarray, rng: Streams | None = None
    ) -> tuple[np.ndarray, Arrays]:
        q_values = observations @ self._table
        if rng is None:
            return q_values.argmax(-1), {}
        return epsilon_greedy(np, q_values, self.config.epsilon, rng.uniform(2)), {}

    def set_weights(self, weights: np.ndarray) -> None:
        self._table = np.array(weights, np.float32).reshape(self._table.shape)

    def set_learner(self) -> None:
        self._rng = generator(self.seed, LEARNER, 1)
        self._blocks = 0

    def train(self, block: Block) -> Metrics:
        self._blocks += 1
        diverges = strike("train", self._blocks)
        seen = block.observations[:-1].reshape(-1, self._table.shape[0])
        following = block.next_observations().reshape(seen.shape)
        taken, rows = block.actions.reshape(-1), np.arange(len(seen))
        bootstrap = (following @ self._table).max(-1) * ~block.terminated.reshape(-1)
        targets = block.rewards.reshape(-1) + self.config.gamma * bootstrap
        errors = targets - (seen @ self._table)[rows, taken]
        errors *= self._rng.random(len(errors)) < 0.5  # so that the stream must be kept
        gradient = np.zeros_like(self._table)
        np.add.at(gradient.T, taken, (errors[:, None] * seen).astype(np.float32))
        self._table = self._table + np.float32(self.config.learning_rate / len(seen)) * gradient
        self._table *= np.float32("nan" if diverges else 1)
        return {"updates": 1, "loss": float((errors**2).mean())}

    def get_weights(self) -> np.ndarray:
        return self._table.reshape(-1).copy()

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        return {"weights": self.get_weights()}, {"rng": json_state(self._rng), "n": self._blocks}

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        self.set_weights(arrays["weights"])
        restore_state(self._rng, numbers["rng"])
        self._blocks = int(numbers["n"])


class Teamed(Linear):
    """The same for several learners: each takes its step alone, then they take the mean."""

    learns_in_team = True

    _team: Team | None = None

    def join_team(self, team: Team) -> None:
        self._team = team

    def set_learner(self) -> None:
        super().set_learner()
        self._rounds = 0

    def train(self, block: Block) -> Metrics:
        return self.train_in_team(block, block.steps)

    def train_in_team(self, block: Block | None, steps: int) -> Metrics:
        self._rounds += 1
        diverges = strike("round", self._rounds)
        found: Metrics = {"updates": 1.0, "loss": 0.0} if block is None else super().train(block)
        self._table *= np.float32("nan" if diverges else 1)
        if self._team is not None:
            self.set_weights(self._team.average(self.get_weights(), float(block is not None)))
        return found


class Bookkeeper(Teamed):
    """Learns nothing, and keeps every observation that a step led to."""

    def set_learner(self) -> None:
        super().set_learner()
        self._kept: list[np.ndarray] = []

    def train_in_team(self, block: Block | None, steps: int) -> Metrics:
        if block is not None:
            self._kept.append(block.next_observations().reshape(-1, 2))
        return {"updates": 1, "loss": 0.0}

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        arrays, numbers = super().state()
        return {**arrays, "kept": np.concatenate([np.zeros((0, 2)), *self._kept])}, numbers

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        super().restore(arrays, {"rng": json_state(self._rng), **numbers})
        self._kept = [arrays["kept"]]


class Joining(Bookkeeper):
    """The same, takes its time, and trains blocks that wait together from the first on."""

    def set_learner(self) -> None:
        super().set_learner()
        together.FIRST_ALONE = 0  # in a run of seconds

    def joins_blocks(self) -> bool:
        return True

    def train_in_team(self, block: Block | None, steps: int) -> Metrics:
        time.sleep(2e-3)
        return super().train_in_team(block, steps)


class Recorder(Linear):
    """The same, and writes down the first number of every observation that a step led to."""

    def train(self, block: Block) -> Metrics:
        with Path(orders().folder, "trained.f32").open("ab") as file:
            file.write(block.next_observations()[..., 0].astype(np.float32).tobytes())
        return super().train(block)


class Witness(Linear):
    """The same, and writes down every transition it is given: before, after, reward."""

    def train(self, block: Block) -> Metrics:
        parts = block.observations[:-1], block.next_observations(), block.rewards[..., None]
        with Path(orders().folder, "transitions.f32").open("ab") as file:
            file.write(np.concatenate(parts, -1).astype(np.float32).tobytes())
        return super().train(block)
