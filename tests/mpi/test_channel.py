"""Bytes between ranks: intact, in order, of any length, and waiting does not spin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

RunBody = Callable[[str, int], list[dict[str, Any]]]


@pytest.mark.parametrize("ranks", [1, 2, 4, 6])
def test_messages_of_every_size_arrive_intact(run_body: RunBody, ranks: int) -> None:
    for found in run_body("channel", ranks):
        assert found == {"flooded": 40 * (ranks - 1), "around": 11, "rounds": 6 * ranks}


def test_waiting_leaves_the_core_alone(run_body: RunBody) -> None:
    busy = [found["cpu"] for found in run_body("idle", 2)]
    assert busy[1] < 0.2, f"a waiting rank was busy {busy[1]:.0%} of the time"


@pytest.mark.parametrize("ranks", [1, 4])
def test_posted_messages_never_wait_for_each_other(run_body: RunBody, ranks: int) -> None:
    for found in run_body("post", ranks):
        assert found == {"received": 4 * ranks}


def test_no_message_is_left_behind(run_body: RunBody) -> None:
    for found in run_body("close", 3):
        assert found == {"left": False}


def test_learners_average_alike_and_wait_politely(run_body: RunBody) -> None:
    """Each learner has the same mean, to the bit, and none keeps a core busy while another is late."""
    first, *others = run_body("team", 3)
    for found in (first, *others):
        assert max(found["equal"], found["unequal"]) < 1e-6
        assert [found["equal bits"], found["unequal bits"]] == [
            first["equal bits"],
            first["unequal bits"],
        ]
    busy = max(found["cpu"] for found in others)
    assert busy < 0.2, f"a learner was busy {busy:.0%} of the time that it waited"
