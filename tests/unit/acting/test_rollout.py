"""The one rollout, against an environment that says where it is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.envs import Broken, Counter, Drift, Fickle, KeptDrift
from support.learning import (
    Scripted,
    adapter_of,
    assert_same_arrays,
    assert_same_block,
    collect,
    make_agent,
    make_rollout,
    through_storage,
)

from exarl.acting.rollout import Rollout
from exarl.envs.taken import TAKEN
from exarl.errors import EnvironmentFailure
from exarl.learning.exploration import Streams
from exarl.types import ACTOR_PHASES, Block, concatenate

SEED = 3
LENGTHS = (3, 1, 0, 4)


def counters(env_id: int) -> Counter:
    return Counter(env_id, LENGTHS, SEED)


def counting(
    env_ids: Sequence[int],
    steps: int = 10,
    limit: int | None = 5,
    make: Any = counters,
    agent: Any = None,
) -> Rollout:
    agent = agent or Scripted(adapter_of(make(0), limit=limit).spec)
    return make_rollout(agent, make, env_ids, steps=steps, limit=limit, seed=SEED)


@dataclass
class Expected:
    """What one environment should have shown, written step by step."""

    observations: list[Any]
    rewards: list[float] = field(default_factory=list)
    terminated: list[bool] = field(default_factory=list)
    truncated: list[bool] = field(default_factory=list)
    finals: list[Any] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)


class Overruled(Counter):
    """An operator takes action 1 in every third step, whatever the policy wants."""

    def step(self, action: Any) -> Any:
        if self._step % 3 == 2:
            return (*super().step(1)[:4], {TAKEN: 1})
        return super().step(action)


@pytest.mark.parametrize(("id", "recorded"), [("DQN-v0", True), ("PPO-v0", False)])
def test_the_action_that_was_taken_instead_is_in_the_block(id: str, recorded: bool) -> None:
    """But not of an agent that learns from the probabilities of its choices."""

    def overruled(env_id: int) -> Overruled:
        return Overruled(env_id, (7,), SEED)

    blocks = []
    for make in (overruled, lambda env_id: Counter(env_id, (7,), SEED)):
        agent = make_agent(adapter_of(make(0)).spec, id=id)
        blocks.append(collect(counting([0, 1], 21, None, make, agent)))
    third = blocks[0].observations[:-1, :, 2] % 3 == 2
    expected = np.where(third & recorded, 1, blocks[1].actions)
    np.testing.assert_array_equal(blocks[0].actions, expected)
    assert (blocks[1].actions[third] == 0).any()
    paid = blocks[0].rewards - blocks[1].rewards
    np.testing.assert_array_equal(paid, 0.5 * (third & (blocks[1].actions == 0)))


def played(env_id: int, actions: list[int], limit: int) -> Expected:
    episode = step = 0
    total = 0.0
    seen = Expected([[env_id, 0, 0]])
    for action in actions:
        step += 1
        seen.rewards.append(100 * episode + step + 0.5 * action)
        total += seen.rewards[-1]
        ended = step == LENGTHS[episode % len(LENGTHS)]
        cut = step == limit and not ended
        seen.terminated.append(ended)
        seen.truncated.append(cut)
        if ended or cut:
            seen.finals.append([env_id, episode, step])
            seen.returns.append(total)
            seen.lengths.append(step)
            episode, step, total = episode + 1, 0, 0.0
        seen.observations.append([env_id, episode, step])
    return seen


@pytest.mark.parametrize("env_ids", [[0], [4, 5, 6]])
@pytest.mark.parametrize("steps", [1, 7, 40])
def test_blocks_hold_what_the_environments_did(env_ids: list[int], steps: int) -> None:
    block = collect(counting(env_ids, steps), version=9)
    each = [played(i, block.actions[:, b].tolist(), 5) for b, i in enumerate(env_ids)]
    for name in ("observations", "rewards", "terminated", "truncated"):
        expected = np.stack([np.array(getattr(e, name)) for e in each], 1)
        np.testing.assert_array_equal(getattr(block, name), expected, err_msg=name)
    finals = np.array([row for e in each for row in e.finals]).reshape(-1, 3)
    np.testing.assert_array_equal(block.final_observations, finals)
    np.testing.assert_array_equal(block.episode_returns, [r for e in each for r in e.returns])
    np.testing.assert_array_equal(block.episode_lengths, [n for e in each for n in e.lengths])
    assert (block.version, block.restarts, block.steps) == (9, 0, steps * len(env_ids))


def test_both_endings_occur_and_next_observations_are_the_true_ones() -> None:
    block = collect(counting([0, 1], 40))
    assert block.terminated.any()
    assert block.truncated.any()
    assert not (block.terminated & block.truncated).any()
    np.testing.assert_array_equal(block.ended, block.terminated | block.truncated)
    following = block.next_observations()
    np.testing.assert_array_equal(following[..., 2], block.observations[:-1, :, 2] + 1)
    np.testing.assert_array_equal(following[..., :2], block.observations[:-1, :, :2])
    assert not np.shares_memory(following, block.observations)


def test_shapes_and_dtypes_are_those_of_the_layout() -> None:
    block = collect(counting([0, 1], 1))
    assert {n: (a.shape, a.dtype.name) for n, a in vars(block).items() if hasattr(a, "dtype")} == {
        "observations": ((2, 2, 3), "float32"),
        "actions": ((1, 2), "int64"),
        "rewards": ((1, 2), "float32"),
        "terminated": ((1, 2), "bool"),
        "truncated": ((1, 2), "bool"),
        "final_observations": ((0, 3), "float32"),
        "episode_returns": ((0,), "float64"),
        "episode_lengths": ((0,), "int64"),
        "seconds": ((len(ACTOR_PHASES),), "float64"),
        "failures": ((0, 6), "int64"),
    }
    assert {n: (a.shape, a.dtype.name) for n, a in block.recorded.items()} == {
        "toss": ((1, 2), "float64"),
        "seen": ((1, 2, 3), "float32"),
    }


def test_what_the_policy_recorded_belongs_to_its_step() -> None:
    block = collect(counting([2, 7], 20))
    np.testing.assert_array_equal(block.recorded["seen"], block.observations[:-1])
    np.testing.assert_array_equal(block.actions, block.recorded["toss"] > 0.5)
    np.testing.assert_array_equal(block.recorded["toss"].T, Streams(SEED, [2, 7]).uniform(20))
    assert 0 < block.actions.mean() < 1


def test_blocks_join_without_a_seam() -> None:
    parts = counting([0, 1], 6)
    whole = collect(counting([0, 1], 18))
    blocks = [collect(parts) for _ in range(3)]
    for name in ("actions", "rewards", "terminated", "truncated"):
        joined = np.concatenate([getattr(block, name) for block in blocks])
        np.testing.assert_array_equal(joined, getattr(whole, name))
    for block, following in pairwise(blocks):
        np.testing.assert_array_equal(block.observations[-1], following.observations[0])
    by_environment = [value for b in (0, 1) for block in blocks for value in returns_of(block, b)]
    np.testing.assert_array_equal(by_environment, whole.episode_returns)


def returns_of(block: Block, environment: int) -> list[float]:
    """The returns of the episodes that one environment finished."""
    counts = block.ended.sum(0)
    start = int(counts[:environment].sum())
    returns: list[float] = block.episode_returns[start : start + counts[environment]].tolist()
    return returns


@pytest.mark.parametrize("groups", [[[0, 1], [2, 3]], [[0], [1, 2, 3]], [[0], [1], [2], [3]]])
@pytest.mark.parametrize("kind", [Counter, Drift])
def test_the_grouping_of_environments_does_not_matter(kind: Any, groups: list[list[int]]) -> None:
    make, agent = counters, None
    if kind is Drift:
        make, agent = (lambda _: Drift()), make_agent(adapter_of(Drift()).spec, epsilon=0.3)
    rollouts = [counting(ids, make=make, agent=agent) for ids in groups]
    together = counting([0, 1, 2, 3], make=make, agent=agent)
    for _ in range(4):
        whole = collect(together)
        assert_same_block(concatenate([collect(rollout) for rollout in rollouts]), whole)
    assert len(np.unique(whole.actions)) > 1


# -- restoring ------------------------------------------------------------------------------------


def drifting(kind: Any, env_ids: Sequence[int], steps: int = 7) -> Rollout:
    agent = make_agent(adapter_of(kind()).spec, epsilon=0.4)
    return make_rollout(agent, lambda _: kind(), env_ids, steps=steps, limit=12, seed=SEED)


@pytest.mark.parametrize("kind", [Drift, KeptDrift])
@given(before=st.integers(0, 6), steps=st.integers(1, 9))
@settings(max_examples=15, deadline=None)
def test_a_restored_rollout_continues_identically(kind: Any, before: int, steps: int) -> None:
    rollout = drifting(kind, [0, 1, 2], steps)
    for _ in range(before):
        collect(rollout)
    stored, _ = through_storage(rollout.state())
    other = drifting(kind, [0, 1, 2], steps)
    other.restore(stored)
    for _ in range(4):
        assert_same_block(collect(rollout), collect(other))
    assert_same_arrays(rollout.state(), other.state())


def test_taking_the_state_changes_nothing() -> None:
    watched, left_alone = drifting(KeptDrift, [0, 1]), drifting(KeptDrift, [0, 1])
    for _ in range(3):
        watched.state()
        assert_same_block(collect(watched), collect(left_alone))


def test_a_state_can_be_taken_over_by_another_grouping() -> None:
    together = drifting(Drift, [0, 1, 2, 3])
    collect(together)
    stored, _ = through_storage(together.state())
    parts = [drifting(Drift, ids) for ids in ([0, 1], [2, 3])]
    for part in parts:
        part.restore(stored)
    for _ in range(3):
        assert_same_block(concatenate([collect(part) for part in parts]), collect(together))


def test_unknown_environments_start_afresh() -> None:
    few = drifting(Drift, [0])
    collect(few)
    more = drifting(Drift, [0, 1])
    more.restore(through_storage(few.state())[0])
    block, continued = collect(more), collect(few)
    np.testing.assert_array_equal(block.rewards[:, :1], continued.rewards)
    fresh = collect(drifting(Drift, [1]))
    np.testing.assert_array_equal(block.observations[0, 1], fresh.observations[0, 0])
    assert block.restarts == 0


def test_restarts_are_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    make = partial(drifting, partial(Fickle, np.inf))
    rollout = make([0, 1])
    collect(rollout)
    other = make([0, 1])
    with caplog.at_level(logging.WARNING):
        other.restore(through_storage(rollout.state())[0])
    assert len(caplog.records) == 2
    assert [collect(other).restarts for _ in range(2)] == [2, 0]


# -- failures and interruptions -------------------------------------------------------------------


@pytest.mark.parametrize(
    "way", ["observation", "reward", "last observation", "shape", "last shape"]
)
def test_an_environment_that_breaks_its_contract_is_named(way: str) -> None:
    def make(env_id: int) -> Drift:
        return Broken(way) if env_id == 21 else Drift()

    agent = make_agent(adapter_of(Drift()).spec)
    rollout = counting([20, 21, 22], make=make, limit=None, agent=agent)
    with pytest.raises(EnvironmentFailure, match=r"environment 21\b"):
        collect(rollout)


def test_a_block_can_be_interrupted_between_steps() -> None:
    rollout, asked = counting([0, 1]), []

    def stopped() -> bool:
        asked.append(True)
        return len(asked) > 4

    assert rollout.collect(0, stopped) is None
    assert len(asked) == 5
    assert rollout.collect(0, lambda: False) is not None


def after(steps: int) -> Callable[[], bool]:
    """Says stop when it is asked before step ``steps`` of a block, counted from 0."""
    asked = iter(range(steps + 1))
    return lambda: next(asked) == steps


@pytest.mark.parametrize("steps", [0, 1, 4, 9])
@pytest.mark.parametrize("make", [counters, lambda i: KeptDrift()])
def test_a_block_that_was_begun_is_finished_after_a_resume(make: Any, steps: int) -> None:
    """To the bit, as if it had never been interrupted: random numbers and running episodes too."""
    agent = make_agent(adapter_of(make(0)).spec) if make is not counters else None
    whole, part, other = (counting([3, 4], make=make, agent=agent) for _ in range(3))
    for rollout in (whole, part):
        collect(rollout)
    assert part.collect(1, after(steps)) is None
    other.restore(through_storage(part.state(unfinished=True))[0])
    for version in (1, 2):
        assert_same_block(collect(other, version), collect(whole, version))
    assert_same_arrays(other.state(unfinished=True), whole.state())


def test_it_is_finished_in_this_process_as_well() -> None:
    whole, part = counting([0, 1]), counting([0, 1])
    for steps in (3, 2, 0):
        assert part.collect(0, after(steps)) is None
    assert_same_block(collect(part), collect(whole))


def test_only_where_it_is_asked_for_is_a_begun_block_in_the_state() -> None:
    part, other = counting([0, 1]), counting([0, 1])
    assert part.collect(0, after(4)) is None
    state = part.state()
    assert not [name for name in state if "begun" in name]
    other.restore(through_storage(state)[0])
    assert collect(other).observations[0, :, 2].tolist() == [0, 0]  # two episodes are over


def test_an_episode_that_cannot_be_continued_ends_within_its_block() -> None:
    """The step before becomes its last, truncated; the rest of the block is of a new episode."""
    agent = make_agent(adapter_of(Fickle()).spec)
    part, other = (
        counting([7], make=lambda i: Fickle(np.inf), limit=None, agent=agent) for _ in "ab"
    )
    assert part.collect(0, after(6)) is None
    stored, _ = through_storage(part.state(unfinished=True))
    other.restore(stored)
    block = collect(other)
    assert np.flatnonzero(block.truncated[:, 0]).tolist() == [5]
    assert block.episode_lengths.tolist() == [6]
    assert block.restarts == 1
    np.testing.assert_array_equal(block.observations[:6], stored["7/begun/observations"][:6, None])
    np.testing.assert_array_equal(block.final_observations, stored["7/begun/observations"][6:])


def test_every_step_is_a_sign_of_life() -> None:
    """A block of slow steps may last longer than a watchdog's patience."""
    moves: list[bool] = []
    agent = Scripted(adapter_of(counters(0), limit=5).spec)
    options = {"steps": 10, "limit": 5, "seed": SEED, "moved": lambda: moves.append(True)}
    collect(make_rollout(agent, counters, [0, 1], **options))
    assert len(moves) == 10


def test_seconds_are_measured_and_close_closes() -> None:
    made: list[Counter] = []

    def make(env_id: int) -> Counter:
        made.append(counters(env_id))
        return made[-1]

    rollout = counting([0, 1], make=make)
    seconds = dict(zip(ACTOR_PHASES, collect(rollout).seconds.tolist(), strict=True))
    assert 0 < seconds["env"] < 5
    assert 0 < seconds["inference"] < 5
    rollout.close()
    assert [env.closed for env in made[1:]] == [True, True]
