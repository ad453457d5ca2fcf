"""The speed of each part of a configuration by itself: the environment, acting, learning; and the speed
of a run after its start."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, cast

import numpy as np

from exarl.acting.rollout import Rollout
from exarl.agents.base import ExaAgent, NoParameters
from exarl.agents.random import Random
from exarl.envs.episode import Episode
from exarl.envs.guard import FAILING
from exarl.learning.exploration import Streams
from exarl.types import FAILURES, NOT_TOLD, Block, EnvSpec

Transition = tuple[Any, float, bool, bool]
"""Observation, reward, terminated, truncated after a step."""

LONGEST_TAPE = 256
"""The most steps of the environment that are recorded to act on and to learn from."""
FEWEST_CALLS = 3


@dataclass(frozen=True)
class EnvRate:
    """One environment with random actions. ``steps_per_s`` includes resets; ``spread``: the standard
    deviation of a step's time over its mean."""

    steps: int
    steps_per_s: float
    median_us: float
    p99_us: float
    reset_us: float
    failures: int
    spread: float = 0.0


@dataclass(frozen=True)
class ActingRate:
    """The policy on a batch of ``observations``."""

    observations: int
    call_us: float
    actions_per_s: float


@dataclass(frozen=True)
class LearningRate:
    """Training on blocks. ``first_s``: how much longer the first update took, because of compiling;
    ``weights``: how many numbers actors receive."""

    block_steps: int
    block_us: float
    steps_per_s: float
    updates_per_s: float
    update_us: float
    first_s: float
    weights: int = 0


@dataclass(frozen=True)
class TrainingRate:
    """A run from its first update on; ``whole``: it was too short to leave its start out."""

    seconds: float
    steps_per_s: float
    updates_per_s: float
    whole: bool = False


@dataclass(frozen=True)
class Tape:
    """Recorded steps of an environment, and the observation before them."""

    first: Any
    steps: Sequence[Transition]


class Replayed:
    """Plays a tape again and again; a rollout uses it as an ``Episode`` that costs nothing."""

    info = NOT_TOLD
    taken = None
    joint = None
    costs = 0.0

    def __init__(self, tape: Tape, env_id: int) -> None:
        self.env_id = env_id
        self.observation = tape.first
        self.number = self.length = self.restarts = 0
        self.total_reward = 0.0
        self.failures = np.zeros(len(FAILURES), np.int64)
        self._tape = tape
        self._next = env_id  # so that environments differ

    def begin(self) -> Any:
        self.length, self.total_reward = 0, 0.0
        self.observation = self._tape.first
        return self.observation

    def step(self, action: Any) -> Transition:
        outcome = self._tape.steps[self._next % len(self._tape.steps)]
        self._next += 1
        self.length += 1
        self.total_reward += outcome[1]
        self.observation = outcome[0]
        return outcome


def measure_env(episode: Episode, spec: EnvSpec, seconds: float) -> tuple[EnvRate, Tape]:
    """Step an environment with random actions for ``seconds``, and at least once."""
    chooses = Random(spec, NoParameters(), cast(Any, None), 0)
    steps: list[float] = []
    resets: list[float] = []
    tape: list[Transition] = []
    failures = 0

    def begin() -> Any:
        asked = perf_counter()
        seen = episode.begin()
        resets.append(perf_counter() - asked)
        return seen

    first = np.array(begin())
    started = perf_counter()
    while not steps or perf_counter() - started < seconds:
        for action in _listed(chooses, 100):
            asked = perf_counter()
            try:
                outcome = episode.step(action)
            except FAILING as error:
                episode.recover(error)
                failures += 1
                begin()
                continue
            now = perf_counter()
            steps.append(now - asked)
            if len(tape) < LONGEST_TAPE:
                tape.append((np.array(outcome[0]), *outcome[1:]))
            if outcome[2] or outcome[3]:
                begin()
            if now - started >= seconds:
                break
    worked = sum(steps) + sum(resets[1:])
    rate = EnvRate(
        len(steps),
        len(steps) / worked,
        1e6 * statistics.median(steps),
        1e6 * float(np.quantile(steps, 0.99)),
        1e6 * statistics.fmean(resets),
        failures,
        statistics.pstdev(steps) / statistics.fmean(steps),
    )
    return rate, Tape(first, tape)


def measure_acting(agent: ExaAgent, tape: Tape, width: int, seconds: float) -> ActingRate:
    """Let the policy act for ``width`` environments again and again."""
    shape, kind = agent.spec.observation.shape, agent.spec.observation.dtype
    seen = [tape.steps[i % len(tape.steps)][0] for i in range(width)]
    observations = np.array(seen, kind).reshape(width, *shape)
    streams = Streams(agent.seed, range(width))
    memory = {name: spec.zeros(width) for name, spec in agent.memory.items()}
    rest = (memory,) if memory else ()
    call = _median(lambda: agent.action(observations, streams, *rest), seconds)
    return ActingRate(width, 1e6 * call, width / call)


def replayed_block(agent: ExaAgent, tape: Tape, steps: int, width: int) -> Block:
    """A block of the steps on the tape, with the actions of ``agent``."""
    episodes = [Replayed(tape, env_id) for env_id in range(width)]
    streams = Streams(agent.seed, range(width))
    block = Rollout(agent, cast(list[Episode], episodes), streams, steps).collect(0)
    assert block is not None
    return block


def measure_learning(agent: ExaAgent, block: Block, seconds: float) -> LearningRate | None:
    """Train on a block again and again; None for an agent that makes no updates.

    ``agent`` is a learner. Its warm-up, if it has one, comes first and takes ``seconds`` at most.
    """
    updates = 0.0

    def train() -> None:
        nonlocal updates
        updates = float(agent.train(block).get("updates", 0))
        agent.get_weights()

    started, first = perf_counter(), 0.0
    while not updates:
        asked = perf_counter()
        train()
        first = perf_counter() - asked
        if not updates and perf_counter() - started > seconds:
            return None
    took = _median(train, seconds)
    return LearningRate(
        block.steps,
        1e6 * took,
        block.steps / took,
        updates / took,
        1e6 * took / updates,
        max(0.0, first - took),
        len(agent.get_weights()),
    )


def training_rate(rows: Sequence[Mapping[str, Any]]) -> TrainingRate | None:
    """The speed of a run in the last three quarters of the time after its first update, from its rows;
    None without rows."""
    if not rows:
        return None
    learnt = [row for row in rows if row["updates_total"] > 0] or rows
    began, ended = learnt[0]["time_total_s"], rows[-1]["time_total_s"]
    steady = [row for row in learnt if row["time_total_s"] >= began + (ended - began) / 4]
    rate = _between(steady[0], rows[-1]) or _between(learnt[0], rows[-1])
    if rate is not None:
        return rate
    nothing = {"timesteps_total": 0, "updates_total": 0, "time_total_s": 0.0}
    rate = _between(nothing, rows[-1])
    return rate and replace(rate, whole=True)


def expected_split(
    env_s: float, acting_s: float, learning_s: float, actors: int, *, alone: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """The fractions of time of learner and actors that follow from seconds per step.

    Alone they take turns; otherwise the slower side sets the pace.
    """
    if alone:
        whole = env_s + acting_s + learning_s
        parts = {"env": env_s, "inference": acting_s, "learn": learning_s}
        return {name: part / whole for name, part in parts.items()}, {}
    env_s, acting_s = env_s / actors, acting_s / actors
    pace = max(env_s + acting_s, learning_s)
    learner = {"learn": learning_s / pace, "wait": 1 - learning_s / pace}
    acting = {"env": env_s / pace, "inference": acting_s / pace}
    return learner, {**acting, "wait": 1 - sum(acting.values())}


def _between(first: Mapping[str, Any], last: Mapping[str, Any]) -> TrainingRate | None:
    seconds = last["time_total_s"] - first["time_total_s"]
    if seconds <= 0:
        return None
    steps, updates = (last[name] - first[name] for name in ("timesteps_total", "updates_total"))
    return TrainingRate(seconds, steps / seconds, updates / seconds)


def _listed(agent: ExaAgent, count: int) -> Any:
    """``count`` random actions in the form that a rollout passes to environments."""
    actions, _ = agent.action(agent.spec.observation.zeros(count))
    return actions.tolist() if agent.spec.n_actions is not None else actions


def _median(function: Callable[[], object], seconds: float) -> float:
    """The median time of a call, of as many calls as fit into ``seconds``, but at least three."""
    function()
    times: list[float] = []
    until = perf_counter() + seconds
    while len(times) < FEWEST_CALLS or perf_counter() < until:
        asked = perf_counter()
        function()
        times.append(perf_counter() - asked)
    return statistics.median(times)
