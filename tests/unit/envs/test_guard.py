"""An environment that fails is made again, and nothing of the failed step is ever seen."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.envs import Counter, StepResult
from support.learning import Scripted, adapter_of, assert_same_block, collect, through_storage

from exarl.acting.rollout import Rollout
from exarl.envs.episode import Episode
from exarl.envs.guard import STEADY, Guard
from exarl.errors import EnvironmentFailure
from exarl.learning.exploration import Streams
from exarl.learning.returns import n_step_returns, vtrace
from exarl.types import FAILURES, Block

SEED = 3
WAYS = {
    "raise": "raise",
    "exit": "raise",
    "observation": "nan",
    "reward": "nan",
    "huge": "nan",
    "shape": "shape",
    "words": "shape",
    "no reward": "shape",
}
"""What the environment does -> how it is counted."""


class Flaky(Counter):
    """Says where it is; fails in ``way`` at the named (episode, step), step 0 being the reset."""

    def __init__(
        self, env_id: int, fails: Collection[tuple[int, int]], way: str, length: int = 6
    ) -> None:
        super().__init__(env_id, [length], SEED)
        self._fails, self._way = fails, way

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(**options)
        if (self._episode, 0) in self._fails:
            return self._fail(observation)[0], info
        return observation, info

    def step(self, action: Any) -> StepResult:
        observation, reward, terminated, truncated, info = super().step(action)
        if (self._episode, self._step) in self._fails:
            observation, reward = self._fail(observation)
        return observation, reward, terminated, truncated, info

    def _fail(self, seen: np.ndarray) -> tuple[Any, Any]:
        if self._way == "raise":
            raise RuntimeError("the solver diverged")
        if self._way == "exit":
            raise SystemExit("the solver gave up")
        return {
            "observation": (seen * np.nan, 1.0),
            "reward": (seen, -np.inf),
            "huge": (seen + 1e300, 1.0),
            "shape": (seen[:2], 1.0),
            "words": (np.array(["a", "b", "c"]), 1.0),
            "no reward": (seen, None),
        }[self._way]


def guarded(
    make: Callable[[int], Any], env_ids: Collection[int], steps: int, patience: int = 10
) -> Rollout:
    """A rollout over environments that are made again when they fail."""
    agent = Scripted(adapter_of(make(0)).spec)
    episodes = []
    for i in env_ids:
        env = make(i)
        guard = Guard(lambda i=i: make(i), patience)  # type: ignore[misc]
        episodes.append(Episode(env, adapter_of(env), None, SEED, i, guard=guard))
    return Rollout(agent, episodes, Streams(SEED, list(env_ids)), steps)


def transitions(blocks: list[Block]) -> list[tuple[Any, ...]]:
    """(environment, episode, step) before and after each transition, and whether it was cut."""
    found = []
    for block in blocks:
        following = block.next_observations()
        for t, b in np.ndindex(block.rewards.shape):
            before, after = block.observations[t, b].tolist(), following[t, b].tolist()
            ended = (bool(block.terminated[t, b]), bool(block.truncated[t, b]))
            found.append((tuple(before), tuple(after), ended))
    return found


PLACES = st.sets(st.tuples(st.integers(0, 12), st.integers(1, 6)), max_size=8)


@given(fails=PLACES, steps=st.integers(1, 11), way=st.sampled_from(sorted(WAYS)))
@settings(max_examples=25, deadline=None)
def test_every_good_step_is_there_once_and_no_failed_one(
    fails: set[tuple[int, int]], steps: int, way: str
) -> None:
    rollout = guarded(lambda i: Flaky(i, fails if i == 4 else (), way), [4, 5], steps)
    blocks = [collect(rollout) for _ in range(60 // steps)]
    seen = transitions(blocks)
    assert len(set(seen)) == len(seen) == 2 * steps * len(blocks)
    for before, after, _ in seen:
        assert after == (*before[:2], before[2] + 1), "a step leads to the next of its episode"
        assert before[0] == 5 or (before[1], after[2]) not in fails
    for block in blocks:
        assert np.isfinite(block.observations).all() and np.isfinite(block.rewards).all()
        assert len(block.final_observations) == block.ended.sum()
    for block, following in pairwise(blocks):
        # Only an environment that failed in the next block's first step is elsewhere by then.
        moved = (block.observations[-1] != following.observations[0]).any(-1)
        assert not moved[1]
        assert not moved[0] or tuple(block.observations[-1, 0, 1:] + [0, 1]) in fails
    last = int(blocks[-1].observations[-1, 0, 1])
    met = [(e, s) for e, s in fails if (e, 0, 0) < (last, 0, 0)]
    counted = sum(block.failures[:, 1:].sum(0) for block in blocks)
    here = [(e, s) for e, s in fails if e == last and s <= blocks[-1].observations[-1, 0, 2]]
    expected = {e for e, _ in [*met, *here]}
    assert counted[FAILURES.index(WAYS[way])] == counted.sum() == len(expected)
    assert sum(block.restarts for block in blocks) == len(expected)
    begun = blocks[-1].observations[-1, :, 1].sum() + 2
    assert sum(block.simulations for block in blocks) == begun


@pytest.mark.parametrize("way", WAYS)
def test_the_step_before_a_failure_is_the_last_of_its_episode(way: str) -> None:
    rollout = guarded(lambda i: Flaky(i, {(1, 3)}, way), [0], 12)
    block = collect(rollout)
    expected = [(0, s) for s in range(6)] + [(1, 0), (1, 1)] + [(2, s) for s in range(4)]
    assert block.observations[:-1, 0, 1:].tolist() == [list(map(float, e)) for e in expected]
    assert block.terminated[:, 0].tolist() == [t == 5 for t in range(12)]
    assert block.truncated[:, 0].tolist() == [t == 7 for t in range(12)]
    assert block.final_observations.tolist() == [[0, 0, 6], [0, 1, 2]]
    assert block.episode_lengths.tolist() == [6, 2]
    rewards = block.rewards[6:8, 0]
    assert block.episode_returns[1] == rewards.sum()
    kind = FAILURES.index(WAYS[way])
    assert block.failures.tolist() == [[0, *(int(k == kind) for k in range(len(FAILURES)))]]


def test_a_failure_in_the_first_step_of_a_block_leaves_the_block_before_as_it_was() -> None:
    """It was handed out long ago; its end is learnt from as a truncation's is (of windows that go on
    in the next block: ``tests/unit/acting/test_lead.py``)."""
    rollout = guarded(lambda i: Flaky(i, {(0, 5)}, "raise"), [0], 4)
    first, second = collect(rollout), collect(rollout)
    assert not first.ended.any()
    assert first.observations[-1].tolist() == [[0, 0, 4]]
    assert second.observations[0].tolist() == [[0, 1, 0]]
    assert not second.ended.any()
    assert second.restarts == 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [1, 3])
def test_learning_takes_the_end_of_a_block_for_a_truncation(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    rewards, v0, v1 = rng.normal(size=(3, 6, 2)).astype(np.float32)
    terminated, cut = np.zeros((6, 2), bool), np.zeros((6, 2), bool)
    cut[-1] = True
    for one, other in zip(
        n_step_returns(np, rewards, terminated, terminated, 0.9, n),
        n_step_returns(np, rewards, terminated, cut, 0.9, n),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    discounts, rho = np.full_like(rewards, 0.9), rng.random((6, 2)).astype(np.float32)
    plain = vtrace(np, v0, v1, rewards, discounts, 1.0 * terminated, rho, 0.95)
    truncated = vtrace(np, v0, v1, rewards, discounts, 1.0 * cut, rho, 0.95)
    np.testing.assert_array_equal(plain, truncated)


@pytest.mark.parametrize("way", ["raise", "observation", "shape"])
def test_a_reset_may_fail_too(way: str) -> None:
    rollout = guarded(lambda i: Flaky(i, {(0, 0), (2, 0), (3, 0)}, way), [0], 14)
    block = collect(rollout)
    assert [int(e) for e in block.observations[:-1, 0, 1]] == [1] * 6 + [4] * 6 + [5] * 2
    assert block.failures[0, 1:].sum() == block.restarts == 3


def test_the_action_of_a_repeated_step_is_fresh_and_others_go_on_as_before() -> None:
    plain = collect(guarded(lambda i: Flaky(i, (), "raise"), [0, 1], 20))
    fails = {(e, s) for e in range(9) for s in (2, 5)}
    one = collect(guarded(lambda i: Flaky(i, fails if i == 0 else (), "raise"), [0, 1], 20))
    other = collect(guarded(lambda i: Flaky(i, fails if i == 0 else (), "raise"), [0, 1], 20))
    assert_same_block(one, other)
    np.testing.assert_array_equal(one.actions[:, 1], plain.actions[:, 1])
    np.testing.assert_array_equal(one.recorded["seen"], one.observations[:-1])
    np.testing.assert_array_equal(one.actions, one.recorded["toss"] > 0.5)
    again = plain.recorded["toss"][:, 0] != one.recorded["toss"][:, 0]
    assert again.sum() == one.restarts > 5


def test_a_guarded_rollout_can_be_restored() -> None:
    fails = {(e, e % 6 + 1) for e in range(1, 40)}

    def make() -> Rollout:
        return guarded(lambda i: Flaky(i, fails, "raise"), [0, 1], 5, patience=99)

    rollout, other = make(), make()
    for _ in range(7):
        collect(rollout)
    other.restore(through_storage(rollout.state())[0])
    for _ in range(7):
        assert_same_block(collect(rollout), collect(other))


def test_failures_in_a_block_that_is_given_up_are_not_forgotten() -> None:
    asked: list[bool] = []

    def stopped() -> bool:
        asked.append(True)
        return len(asked) > 4

    rollout = guarded(lambda i: Flaky(i, {(0, 2)}, "raise"), [0], 8)
    assert rollout.collect(0, stopped) is None
    stored, _ = through_storage(rollout.state())
    other = guarded(lambda i: Flaky(i, {(0, 2)}, "raise"), [0], 8)
    other.restore(stored)
    for continued in (rollout, other):
        assert collect(continued).failures.tolist() == [[0, 1, 0, 0, 0, 0]]
        assert len(collect(continued).failures) == 0


def test_a_block_with_failures_is_finished_after_a_resume() -> None:
    def make() -> Rollout:
        return guarded(lambda i: Flaky(i, {(0, 2), (1, 1)}, "raise"), [0, 1], 8)

    whole, part, other = make(), make(), make()
    asked = iter(range(9))
    assert part.collect(0, lambda: next(asked) == 5) is None
    other.restore(through_storage(part.state(unfinished=True))[0])
    block = collect(other)
    assert block.restarts == 4
    assert_same_block(block, collect(whole))


class Unsaveable(Flaky):
    """Says where it is; its first request for a state fails."""

    def get_state(self) -> dict[str, np.ndarray]:
        if self._episode == 0:
            raise RuntimeError("no disk")
        return {"at": np.array([self._episode, self._step])}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        self._episode, self._step = state["at"].tolist()


def test_an_environment_that_fails_when_its_block_is_stored_ends_its_episode_there() -> None:
    part, other = (guarded(lambda i: Unsaveable(i, (), "raise"), [0], 8) for _ in range(2))
    asked = iter(range(9))
    assert part.collect(0, lambda: next(asked) == 3) is None
    other.restore(through_storage(part.state(unfinished=True))[0])
    block = collect(other)
    assert np.flatnonzero(block.truncated[:, 0]).tolist() == [2]
    assert block.observations[:, 0, 1].tolist() == [0] * 3 + [1] * 6  # the episode before each step
    assert block.final_observations.tolist() == [[0, 0, 3]]
    assert (block.restarts, block.failures.tolist()) == (1, [[0, 1, 0, 0, 0, 0]])


# -- giving up ------------------------------------------------------------------------------------


class Doomed(Counter):
    """Fails in every episode at the same step, and counts how often it was made."""

    made = 0

    def __init__(self, at: int) -> None:
        super().__init__(0, [0], SEED)
        self._at = at
        Doomed.made += 1

    def step(self, action: Any) -> StepResult:
        if self._step + 1 == self._at:
            raise RuntimeError("no licence")
        return super().step(action)


@pytest.mark.parametrize("at", [1, 2, STEADY])
def test_the_run_stops_after_so_many_failures_in_a_row(at: int) -> None:
    rollout = guarded(lambda _: Doomed(at), [0], 200, patience=4)
    with pytest.raises(EnvironmentFailure, match=r"failed 4 times in a row.*RuntimeError: no lic"):
        collect(rollout)


def test_good_steps_break_a_row() -> None:
    block = collect(guarded(lambda _: Doomed(STEADY + 1), [0], 25 * STEADY + 1, patience=2))
    assert block.restarts == 25


def test_an_episode_that_ends_breaks_a_row() -> None:
    odd = {(episode, 1) for episode in range(1, 50, 2)}
    block = collect(guarded(lambda i: Flaky(i, odd, "raise", length=2), [0], 40, patience=2))
    assert block.restarts == 19


def test_an_environment_that_cannot_be_made_again_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = []

    def make() -> Any:
        made.append(True)
        raise OSError("the executable is gone")

    env = Flaky(7, {(0, 2)}, "raise")
    episode = Episode(env, adapter_of(env), None, SEED, 7, guard=Guard(make, 5))
    episode.begin()
    episode.step(0)
    with caplog.at_level(logging.WARNING), pytest.raises(RuntimeError) as caught:
        episode.step(0)
    with pytest.raises(EnvironmentFailure, match=r"5 times in a row.*executable is gone"):
        episode.recover(caught.value)
    assert len(made) == 4
    assert episode.failures.tolist() == [5, 0, 0, 0, 0]
    assert "environment 7: RuntimeError: the solver diverged (raise; episode 0, step 2)" in (
        caplog.text
    )


def test_without_a_guard_the_error_itself_comes_through() -> None:
    env = Flaky(0, {(0, 2)}, "raise")
    episode = Episode(env, adapter_of(env), None, SEED, 0)
    rollout = Rollout(Scripted(adapter_of(env).spec), [episode], Streams(SEED, [0]), 4)
    with pytest.raises(RuntimeError, match="diverged"):
        collect(rollout)
