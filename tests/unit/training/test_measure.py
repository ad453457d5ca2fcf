"""What the parts of a configuration can do: measured where the answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.envs import Counter
from support.learning import Scripted, discrete_spec, make_agent, make_episode

from exarl.records.clock import bound
from exarl.training import measure
from exarl.training.measure import (
    LONGEST_TAPE,
    Tape,
    expected_split,
    measure_acting,
    measure_env,
    measure_learning,
    replayed_block,
    training_rate,
)
from exarl.types import Block

SPEC = discrete_spec()


def tape_of(length: int = 7, period: int = 3) -> Tape:
    """Steps that say their number; every ``period``-th is the last of an episode."""
    seen = [np.full(3, step, np.float32) for step in range(length + 1)]
    steps = [(seen[i + 1], float(i), i % period == period - 1, False) for i in range(length)]
    return Tape(seen[0], steps)


def row(seconds: float, steps: int, updates: int) -> dict[str, Any]:
    return {"time_total_s": seconds, "timesteps_total": steps, "updates_total": updates}


def test_the_environment_is_stepped_and_its_steps_are_kept() -> None:
    rate, tape = measure_env(make_episode(Counter(lengths=(3,))), SPEC, 0.0)
    assert rate.steps == len(tape.steps) == 1
    rate, tape = measure_env(make_episode(Counter(lengths=(0,))), SPEC, 0.1)
    assert rate.steps > LONGEST_TAPE
    assert len(tape.steps) == LONGEST_TAPE
    assert [int(step[0][2]) for step in tape.steps] == list(range(1, LONGEST_TAPE + 1))
    assert 0 < rate.median_us <= rate.p99_us
    assert rate.failures == 0


class ShortEpisodes:
    """Episodes of one step, which ends them in one way or the other."""

    def __init__(self, terminated: bool) -> None:
        self.begun = 0
        self._ends = (terminated, not terminated)

    def begin(self) -> np.ndarray:
        self.begun += 1
        return np.zeros(3, np.float32)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool]:
        return np.ones(3, np.float32), 1.0, *self._ends


@pytest.mark.parametrize("terminated", [True, False])
def test_an_episode_that_ends_in_either_way_is_followed_by_the_next(terminated: bool) -> None:
    episode: Any = ShortEpisodes(terminated)
    rate, tape = measure_env(episode, SPEC, 0.01)
    assert episode.begun == 1 + rate.steps
    assert tape.steps[0][2:] == (terminated, not terminated)


def test_a_replayed_block_is_a_block_of_the_steps_on_the_tape() -> None:
    agent = Scripted(SPEC)
    block = replayed_block(agent, tape_of(), steps=9, width=2)
    assert block.observations.shape == (10, 2, 3)
    # Environment 1 begins one step later on the tape; an end is followed by the first observation.
    assert block.rewards[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 1]
    assert block.rewards[:, 1].tolist() == [1, 2, 3, 4, 5, 6, 0, 1, 2]
    assert np.flatnonzero(block.terminated[:, 0]).tolist() == [2, 5]
    assert block.observations[:, 0, 0].tolist() == [0, 1, 2, 0, 4, 5, 0, 7, 1, 2]
    assert block.final_observations[:, 0].tolist() == [3, 6, 3, 6, 3]
    assert block.episode_returns.tolist() == [3, 12, 3, 12, 9]
    assert set(block.recorded) == {"toss", "seen"}


@pytest.mark.parametrize(("id", "units"), [("DQN-v0", 0), ("PPO-v0", 4)])
def test_acting_and_learning_with_and_without_memory(id: str, units: int) -> None:
    small: dict[str, Any] = {"minibatches": 1, "epochs": 3}
    if id == "DQN-v0":
        small = {"batch_size": 2, "learning_starts": 0, "updates_per_step": 0.5}
    agent = make_agent(SPEC, id=id, units=units, **small)
    acting = measure_acting(agent, tape_of(), 3, 0.01)
    assert acting.observations == 3
    assert acting.actions_per_s == pytest.approx(3e6 / acting.call_us)
    block = replayed_block(agent, tape_of(), steps=4, width=3)
    agent.set_learner()
    learning = measure_learning(agent, block, 0.01)
    assert learning is not None
    assert 0 <= learning.first_s < 60
    updates = 6 if id == "DQN-v0" else 3
    assert learning.block_steps == 12
    assert learning.updates_per_s / learning.steps_per_s == pytest.approx(updates / 12)
    assert learning.update_us == pytest.approx(learning.block_us / updates)
    assert learning.first_s > learning.block_us / 1e6, "tracing alone takes longer than training"


def test_an_agent_that_never_learns_is_given_up() -> None:
    agent = make_agent(SPEC, learner=True, learning_starts=10**9)
    block = replayed_block(agent, tape_of(), steps=4, width=1)
    assert measure_learning(agent, block, 0.02) is None


@pytest.mark.parametrize(("first", "compiling"), [(5.0, 3.0), (2.0, 0.0), (0.5, 0.0)])
def test_compiling_takes_what_the_first_update_took_longer_and_never_less_than_nothing(
    first: float, compiling: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    agent = Scripted(SPEC)

    def train(block: Block) -> dict[str, float]:
        nonlocal now
        agent.trained.append(block)
        now += first if len(agent.trained) == 1 else 2.0
        return {"updates": 3}

    monkeypatch.setattr(measure, "perf_counter", lambda: now)
    monkeypatch.setattr(agent, "train", train)
    learning = measure_learning(agent, replayed_block(agent, tape_of(), steps=4, width=1), 10.0)
    assert learning is not None
    assert (learning.block_us, learning.first_s) == (2e6, compiling)


def test_the_training_rate_leaves_the_start_out() -> None:
    warm_up = [row(1, 900, 0), row(2, 1800, 0)]
    compiles = [row(6, 1810, 10)]
    steady = [row(6 + s, 1810 + 100 * s, 10 + 50 * s) for s in (0.5, 1, 2, 3, 4)]
    rate = training_rate([*warm_up, *compiles, *steady])
    assert rate is not None
    assert (rate.seconds, rate.steps_per_s, rate.updates_per_s) == (3, 100, 50)
    assert not rate.whole


def test_the_training_rate_of_short_runs() -> None:
    assert training_rate([]) is None
    one = training_rate([row(4, 100, 20)])
    assert one is not None
    assert (one.steps_per_s, one.updates_per_s, one.whole) == (25, 5, True)
    two = training_rate([row(4, 100, 20), row(6, 120, 40)])
    assert two is not None
    assert (two.steps_per_s, two.updates_per_s, two.whole) == (10, 10, False)
    never = training_rate([row(s, 10 * s, 0) for s in range(1, 9)])
    assert never is not None
    assert (never.steps_per_s, never.updates_per_s) == (10, 0)


@pytest.mark.parametrize(
    ("env", "acting", "learning", "actors", "alone", "expected"),
    [
        (8.0, 1.0, 1.0, 1, True, "environment"),
        (1.0, 8.0, 1.0, 1, True, "inference"),
        (1.0, 1.0, 8.0, 1, True, "learning"),
        (8.0, 1.0, 1.0, 4, False, "environment"),
        (8.0, 1.0, 1.0, 32, False, "learning"),
        (1.0, 8.0, 1.0, 4, False, "inference"),
    ],
)
def test_what_is_to_be_expected_of_the_parts(
    env: float, acting: float, learning: float, actors: int, alone: bool, expected: str
) -> None:
    split = expected_split(env, acting, learning, actors, alone=alone)
    for parts in split:
        assert sum(parts.values()) == pytest.approx(1.0 if parts else 0.0)
        assert min(parts.values(), default=0) >= 0
    assert bound(*split)[0] == expected


def test_the_rate_is_that_of_the_last_three_quarters() -> None:
    """Of 100 seconds since the first update, those from 25 on: 7500 steps and 75 updates."""
    rows = [row(0, 0, 1), row(22, 1000, 2), row(25, 1300, 3), row(100, 8800, 78)]
    rate = training_rate([row(0, 0, 0), *rows])
    assert rate is not None
    assert (rate.seconds, rate.steps_per_s, rate.updates_per_s) == (75, 100, 1)
    assert not rate.whole
