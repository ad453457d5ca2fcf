"""The pacer: every grant is used once, lag stays within its bound, no actor starves."""

from __future__ import annotations

import copy
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exarl.comm.pacer import Pacer, feasible, may_begin, oldest_in_time
from exarl.errors import ConfigError
from exarl.workflows.rma_memory import RmaConfig


def simulate(
    actors: int, max_lag: int | None, ahead: int, order: str, blocks: int, seed: int
) -> tuple[list[int], list[int]]:
    """Actors of random speed under a pacer: the lag of each trained block, and who made it."""
    rng = random.Random(seed)
    speed = [rng.choice([1, 1, 2, 30]) for _ in range(actors)]
    pacer = Pacer(range(actors), max_lag=max_lag, ahead=ahead, order=order)
    version, clock = 0, 0
    grants: dict[int, list[int]] = {actor: [] for actor in range(actors)}
    busy_until: dict[int, int] = {}
    acting: dict[int, int] = {}
    arrived: dict[int, list[int]] = {actor: [] for actor in range(actors)}
    lags, makers = [], []
    for actor in pacer.grants(version):
        grants[actor].append(version)
    while len(lags) < blocks:
        clock += 1
        assert clock < 100_000, "nothing moves any more"
        for actor in range(actors):
            if actor in busy_until and busy_until[actor] <= clock:
                del busy_until[actor]
                arrived[actor].append(acting.pop(actor))
                pacer.arrived(actor)
            if actor not in busy_until and grants[actor]:
                acting[actor] = grants[actor].pop(0)
                busy_until[actor] = clock + speed[actor]
        chosen = pacer.next(version)
        if chosen is not None:
            lags.append(version - arrived[chosen].pop(0))
            makers.append(chosen)
            pacer.trained(chosen)
            version += 1
            for actor in pacer.grants(version):
                grants[actor].append(version)
    return lags, makers


@pytest.mark.parametrize("order", ["first_come", "round_robin"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("max_lag", [0, 1, 3, 10])
def test_lag_stays_within_its_bound(order: str, seed: int, max_lag: int) -> None:
    lags, makers = simulate(5, max_lag, 1, order, 200, seed)
    assert max(lags) <= max_lag
    assert set(makers) == set(range(5))


@given(
    actors=st.integers(1, 6),
    max_lag=st.none() | st.integers(0, 8),
    ahead=st.integers(0, 3),
    order=st.sampled_from(["first_come", "round_robin"]),
    seed=st.integers(0, 1000),
)
def test_any_setting_moves_and_keeps_the_bound(
    actors: int, max_lag: int | None, ahead: int, order: str, seed: int
) -> None:
    lags, _ = simulate(actors, max_lag, ahead, order, 40, seed)
    assert max_lag is None or max(lags) <= max_lag


def test_one_actor_without_lag_takes_turns_with_the_learner() -> None:
    pacer = Pacer([7], max_lag=0)
    assert pacer.grants(0) == [7]
    assert pacer.grants(0) == []
    assert pacer.next(0) is None
    pacer.arrived(7)
    assert pacer.next(0) == 7
    pacer.trained(7)
    assert pacer.grants(1) == [7]


def test_without_a_bound_every_actor_may_run_ahead() -> None:
    pacer = Pacer([1, 2, 3], max_lag=None, ahead=1)
    assert sorted(pacer.grants(0)) == [1, 1, 2, 2, 3, 3]


def test_round_robin_waits_for_the_actor_whose_turn_it_is() -> None:
    pacer = Pacer([1, 2], max_lag=None, ahead=0, order="round_robin")
    pacer.grants(0)
    pacer.arrived(2)
    assert pacer.next(0) is None
    pacer.arrived(1)
    assert pacer.next(0) == 1


@pytest.mark.parametrize(
    ("versions", "now", "bound", "possible"),
    [([], 5, 0, True), ([5], 5, 0, True), ([5, 5], 5, 0, False), ([5, 5], 5, 1, True),
     ([3, 5], 5, 1, False), ([3, 3, 4], 5, None, True)],
)  # fmt: skip
def test_feasible_by_hand(versions: list[int], now: int, bound: int | None, possible: bool) -> None:
    assert feasible(versions, now, bound) is possible


def test_blocks_that_other_learners_made_late_are_trained_all_the_same() -> None:
    pacer = Pacer([1, 2, 3], max_lag=1, ahead=0)
    assert pacer.grants(0) == [1, 2]
    pacer.arrived(1)
    pacer.arrived(2)
    assert pacer.next(5) == 1  # five rounds went by: neither can be in time any more
    pacer.trained(1)
    assert pacer.next(6) == 2


def test_a_buffer_refuses_a_bound_that_it_cannot_keep() -> None:
    with pytest.raises(ConfigError, match="queue or stack"):
        RmaConfig(structure="buffer", max_policy_lag=2)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("max_lag", [None, 6])
def test_grants_are_those_of_a_look_at_every_actor(seed: int, max_lag: int | None) -> None:
    """Although only those that are free are looked at, so that a thousand cost no more than one."""
    rng = random.Random(seed)
    pacer = Pacer(range(5), max_lag=max_lag, ahead=rng.randrange(3), most=rng.choice([None, 7]))
    under_way: list[int] = []
    for version in range(300):
        thorough = copy.deepcopy(pacer)
        thorough._room = list(range(len(thorough._actors)))
        given = pacer.grants(version)
        assert given == thorough.grants(version)
        under_way += given
        if rng.random() < 0.05:
            pacer.join(version + 5)
        if rng.random() < 0.05 and len(pacer._actors) > 2:
            gone = rng.choice(pacer._actors)
            pacer.remove(gone)
            under_way = [actor for actor in under_way if actor != gone]
        for _ in range(rng.randrange(3)):
            if under_way:
                pacer.arrived(under_way.pop(rng.randrange(len(under_way))))
        if (actor := pacer.next(version)) is not None:
            pacer.trained(actor)


def test_turns_go_round_and_start_after_the_last_one_that_was_granted() -> None:
    pacer = Pacer([5, 6, 7, 8], max_lag=1, ahead=0)
    assert pacer.grants(0) == [5, 6]
    pacer.arrived(6)
    pacer.arrived(5)
    for version, actor in enumerate((6, 5), start=1):
        assert pacer.next(version) == actor
        pacer.trained(actor)
        assert pacer.grants(version) == [{6: 7, 5: 8}[actor]]


def test_an_actor_that_is_lost_leaves_its_blocks_that_have_come() -> None:
    pacer = Pacer([1, 2], max_lag=None, ahead=1)
    pacer.grants(0)
    pacer.arrived(1)
    assert pacer.remove(1) == 1
    assert pacer.outstanding == 3
    pacer.join(3)
    assert pacer.grants(0) == [3, 3]
    assert pacer.next(0) == 1
    pacer.trained(1)
    assert pacer.outstanding == 4
    assert pacer.grants(1) == []


@pytest.mark.parametrize(
    ("waiting", "acting", "now", "chosen"),
    [([], [3], 3, None), ([3, 2], [], 3, 1), ([3], [2], 3, None), ([3], [3], 3, 0),
     ([2, 2], [2], 3, 0), ([1, 2], [2], 5, 0)],
)  # fmt: skip
def test_the_oldest_block_is_trained_if_the_others_can_wait(
    waiting: list[int], acting: list[int], now: int, chosen: int | None
) -> None:
    assert oldest_in_time(waiting, acting, now, 1) == chosen


def test_a_block_may_begin_while_those_under_way_leave_room_for_it() -> None:
    assert may_begin(100, 0, None)
    assert may_begin(7, 5, 2)
    assert not may_begin(8, 5, 2)


def test_thousands_of_actors_cost_a_block_no_more() -> None:
    pacer = Pacer(range(5000), max_lag=None)
    started = time.process_time()
    for block, actor in enumerate(pacer.grants(0), start=1):
        pacer.arrived(actor)
        pacer.trained(pacer.next(block))  # type: ignore[arg-type]
        assert pacer.grants(block) == [actor]
    assert time.process_time() - started < 1.0  # 2 s and more if each looked at all actors
