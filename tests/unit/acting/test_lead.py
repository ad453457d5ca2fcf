"""The steps before a block: windows of n steps go on from one block to the next, and from no episode
to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.envs import Counter, Fickle, Flaky, KeptDrift
from support.learning import (
    adapter_of,
    assert_same_arrays,
    assert_same_block,
    collect,
    make_agent,
    make_rollout,
    through_storage,
)
from support.transitions import assert_alike, expected_rows, given_rows, listed

from exarl.acting.rollout import Rollout
from exarl.envs.episode import Episode
from exarl.envs.guard import Guard
from exarl.learning.exploration import Streams
from exarl.types import Block, concatenate

SEED, GAMMA, LIMIT = 3, 0.5, 9
LENGTHS = (3, 1, 0, 4, 7, 0, 0, 12)  # 0 is cut at LIMIT
LENGTHS_OF_BLOCKS = (1, 3, 4, 7, 32)
TOTAL = 672  # steps of each environment: whole blocks of all of these
PLACES = st.sets(st.tuples(st.integers(0, 9), st.integers(0, 6)), max_size=8)


def agent_of(n: int, env: Any = None, **parameters: Any) -> Any:
    spec = adapter_of(env or Counter(), limit=LIMIT).spec
    return make_agent(spec, gamma=GAMMA, n_step=n, **parameters)


def counting(agent: Any, steps: int, env_ids: Sequence[int] = (0, 1)) -> Rollout:
    def make(env_id: int) -> Counter:
        return Counter(env_id, LENGTHS, SEED)

    return make_rollout(agent, make, env_ids, steps=steps, limit=LIMIT, seed=SEED)


def failing(agent: Any, steps: int, fails: Any) -> Rollout:
    """Two environments that fail, the second one elsewhere, and are made again."""
    episodes = []
    for i in range(2):

        def make(i: int = i) -> Flaky:
            return Flaky(i, {((e + i) % 10, s) for e, s in fails})

        guard = Guard(make, 1000)
        episodes.append(Episode(make(), adapter_of(make()), None, SEED, i, guard=guard))
    return Rollout(agent, episodes, Streams(SEED, [0, 1]), steps)


def collected(rollout: Rollout, total: int, steps: int) -> list[Block]:
    return [collect(rollout, version) for version in range(total // steps)]


@pytest.mark.parametrize("n", [2, 3, 8])
def test_what_is_learned_does_not_depend_on_the_length_of_blocks(n: int) -> None:
    agent = agent_of(n)
    given = []
    for steps in LENGTHS_OF_BLOCKS:
        blocks = collected(counting(agent, steps), TOTAL, steps)
        given.append(given_rows(agent, blocks))
        assert given[-1] == expected_rows(blocks, n, GAMMA)
        assert len(given[-1]) == 2 * (TOTAL - n + 1)  # each window once, when it is complete
    assert all(other == given[0] for other in given)


@given(fails=PLACES, n=st.integers(2, 6))
@settings(max_examples=15, deadline=None)
def test_nor_do_windows_run_across_failures(fails: set[tuple[int, int]], n: int) -> None:
    agent = agent_of(n)
    given = []
    for steps in (1, 4, 7, 28):
        blocks = collected(failing(agent, steps, fails), 56, steps)
        given.append(given_rows(agent, blocks))
        assert given[-1] == expected_rows(blocks, n, GAMMA)
    assert all(other == given[0] for other in given)


def test_a_failure_in_the_first_step_of_a_block_truncates_the_lead() -> None:
    """And not the block before, which is handed out."""
    agent = agent_of(3)
    rollout = failing(agent, 4, {(0, 5)})
    first, second, third = (collect(rollout) for _ in range(3))
    assert not first.truncated.any()
    assert second.lead is not None and third.lead is not None
    assert np.asarray(second.lead.truncated).tolist() == [[False, False], [True, False]]
    assert second.lead.next_observations[-1, 0].tolist() == [0, 0, 4]
    assert np.asarray(third.lead.truncated).any(0).tolist() == [False, False]
    assert first.lead is not None
    assert not np.asarray(first.lead.known).any()


def test_without_windows_of_several_steps_there_is_no_lead() -> None:
    """Neither in a block nor in a state; nor where sequences are learned."""
    lead = agent_of(3).lead_steps
    assert lead == 2
    for agent in (agent_of(1), agent_of(3, units=4)):
        assert agent.lead_steps == 0
        rollout = counting(agent, 4)
        assert collect(rollout).lead is None
        assert not [name for name in rollout.state() if "lead" in name]


def test_blocks_joined_give_what_they_give_apart() -> None:
    agent = agent_of(4)
    rollouts = [counting(agent, 3, ids) for ids in ([0, 1], [2])]
    for _ in range(4):
        blocks = [collect(rollout) for rollout in rollouts]
        assert given_rows(agent, [concatenate(blocks)]) == given_rows(agent, blocks)


# -- resuming -------------------------------------------------------------------------------------


def after(steps: int) -> Callable[[], bool]:
    asked = iter(range(steps + 1))
    return lambda: next(asked) == steps


@pytest.mark.parametrize("steps", [2, 5])
@pytest.mark.parametrize("stop", [0, 1, 4])
def test_a_run_in_parts_is_the_whole_run(steps: int, stop: int) -> None:
    """Stopped between two blocks, or within one."""
    agent = agent_of(4)
    whole, part, other = (counting(agent, steps) for _ in range(3))
    blocks = collected(part, 4 * steps, steps)
    if 0 < stop < steps:
        assert part.collect(9, after(stop)) is None
    other.restore(through_storage(part.state(unfinished=True))[0])
    blocks += [collect(other, version) for version in range(4, 40)]
    for version, block in enumerate(blocks):
        assert_same_block(block, collect(whole, version))
    assert_same_arrays(other.state(), whole.state())
    assert given_rows(agent, blocks) == expected_rows(blocks, 4, GAMMA)


@pytest.mark.parametrize("steps", [3, 5])
def test_steps_that_are_lost_with_an_unfinished_block_are_in_no_window(steps: int) -> None:
    agent = agent_of(4)
    part, other, another, last = (counting(agent, steps) for _ in range(4))
    blocks = collected(part, 4 * steps, steps)
    assert part.collect(9, after(2)) is None
    another.restore(through_storage(part.state(unfinished=True))[0])
    other.restore(through_storage(part.state())[0])
    last.restore(through_storage(another.state())[0])
    for going_on in (part, other, last):
        both = [*blocks, *collected(going_on, 10 * steps, steps)]
        assert given_rows(agent, both) == expected_rows(both, 4, GAMMA)


def test_a_block_that_was_only_begun_has_lost_nothing() -> None:
    agent = agent_of(4)
    whole, part, other = (counting(agent, 2) for _ in range(3))
    for rollout in (whole, part):
        collected(rollout, 8, 2)
    assert part.collect(9, after(0)) is None
    other.restore(through_storage(part.state())[0])
    assert_same_block(collect(other), collect(whole))


def test_an_episode_that_cannot_be_continued_ends_in_the_lead() -> None:
    agent = agent_of(4, Fickle())

    def make() -> Rollout:
        return make_rollout(agent, lambda i: Fickle(np.inf), [7], steps=3, seed=SEED)

    part, other = make(), make()
    blocks = collected(part, 9, 3)
    other.restore(through_storage(part.state())[0])
    blocks.append(collect(other))
    assert blocks[-1].restarts == 1
    assert blocks[-1].lead is not None
    assert np.asarray(blocks[-1].lead.truncated)[:, 0].tolist() == [False, False, True]
    blocks += collected(other, 9, 3)
    assert_alike(given_rows(agent, blocks), expected_rows(blocks, 4, GAMMA))


def test_a_state_of_before_there_were_leads_begins_with_unknown_steps() -> None:
    agent = agent_of(4)
    part, other = counting(agent, 2), counting(agent, 2)
    collected(part, 20, 2)
    state = {n: a for n, a in through_storage(part.state())[0].items() if "/lead/" not in n}
    other.restore(state)
    blocks = collected(other, 20, 2)
    assert given_rows(agent, blocks) == expected_rows(blocks, 4, GAMMA)
    counts = [len(listed(agent.algorithm.rows(np, agent.hyper, b))) for b in blocks]
    assert counts == [0, 2, *[4] * 8]


def test_a_stored_lead_of_another_form_is_refused() -> None:
    agent = agent_of(4)
    part = counting(agent, 2)
    collect(part)
    state = part.state()
    state["1/lead/rewards"] = state["1/lead/rewards"][:1]
    with pytest.raises(ValueError, match="lead/rewards"):
        counting(agent, 2).restore(state)


def test_environments_keep_their_leads_in_another_grouping() -> None:
    agent = agent_of(3, KeptDrift())

    def make(ids: Sequence[int]) -> Rollout:
        return make_rollout(agent, lambda _: KeptDrift(), ids, steps=2, limit=LIMIT, seed=SEED)

    together, parts = make([0, 1, 2, 3]), [make([0, 1]), make([2, 3])]
    collect(together)
    stored, _ = through_storage(together.state())
    for part in parts:
        part.restore(stored)
    assert_same_block(concatenate([collect(part) for part in parts]), collect(together))
