"""What learners bring to a round, what it adds up to, and who decides."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.learning import discrete_spec, random_block

from exarl.comm.mailbox import Mailbox
from exarl.errors import ExarlError
from exarl.records.metrics import FROM_BLOCKS
from exarl.training.rounds import Decision, Report, Rounds
from exarl.types import Block


def block(seed: int, version: int = 3) -> Block:
    return dataclasses.replace(random_block(discrete_spec(), seed), version=version, restarts=seed)


def never() -> bool:
    return False


def together(count: int) -> list[Rounds]:
    """The rounds of several learners, joined by mailboxes."""
    boxes: list[Mailbox] = []
    doors: list[Callable[..., Any]] = [
        lambda *letter, rank=rank: boxes[rank].deliver(*letter) for rank in range(count)
    ]
    boxes += [Mailbox(rank, count, doors) for rank in range(count)]
    return [Rounds(box) for box in boxes]


def test_a_report_is_of_its_block() -> None:
    found, seen = block(2), Report.of(block(2), version=7, checksum=11)
    assert (seen.blocks, seen.steps, seen.totals["env_restarts"]) == (1, 16, 2)
    assert seen.returns == found.episode_returns.tolist()
    assert seen.lengths == found.episode_lengths.tolist()
    assert seen.seconds == found.seconds.tolist()
    assert seen.lags == [4]
    assert seen.checksum == 11
    assert Report.of(None, version=7, checksum=11) == Report(checksum=11)


def test_reports_add_up() -> None:
    totals = dict.fromkeys(FROM_BLOCKS, 0) | {"env_restarts": 2}
    one = Report(1, 16, totals, [1.0], [5], [0.5, 1.0, 2.0], [4], None, [[0, 1]], 3)
    other = Report(
        2, 20, {"env_restarts": 1}, [2.0, 3.0], [6, 7], [0.25], [0, 1], None, [[1, 2]], 4
    )
    expected = Report(
        3,
        36,
        dict.fromkeys(FROM_BLOCKS, 0) | {"env_restarts": 3},
        [1, 2, 3],
        [5, 6, 7],
        [0.75, 1.0, 2.0],
        [4, 0, 1],
        None,
        [[0, 1], [1, 2]],
        7,
    )
    assert one + other == expected
    assert (other + one).seconds == expected.seconds
    assert one + Report() == one


def test_learners_whose_weights_differ_are_noticed() -> None:
    assert (Report(checksum=5) + Report(checksum=5)).checksum == 5
    with pytest.raises(ExarlError, match="drifted"):
        Report(checksum=5) + Report(checksum=6)


def test_one_learner_alone_decides_for_itself() -> None:
    rounds, found = Rounds(None), block(1)
    assert rounds.wait(lambda: found, never) is found
    blocks = iter([None, None, found])
    assert rounds.wait(lambda: next(blocks), never) is found
    assert rounds.wait(lambda: None, lambda: True) is None
    for flags in ((True, False, False), (False, True, False), (False, False, True)):
        assert rounds.decide(Report(), *flags) == Decision(*flags, Report())


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("owner", [0, 1])
def test_one_block_opens_a_round_for_all_and_learner_0_decides(count: int, owner: int) -> None:
    learners = together(count)

    def take_part(rank: int) -> Decision:
        mine = block(rank) if rank == owner else None
        found = learners[rank].wait(lambda: mine, never)
        assert found is mine
        report = Report.of(found, version=3)
        # Only what learner 0 says counts.
        return learners[rank].decide(report, rank == 0, rank != 0, rank == 0)

    with ThreadPoolExecutor(count) as pool:
        decisions = list(pool.map(take_part, range(count)))
    assert all(decision == decisions[0] for decision in decisions)
    first = decisions[0]
    assert (first.stop, first.interrupted, first.checkpoint) == (True, False, True)
    assert first.report == Report.of(block(owner), version=3)
