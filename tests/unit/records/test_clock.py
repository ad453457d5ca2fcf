"""Who is told that work was done, and what bounds a run, in words."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from exarl.records.clock import BOUNDS, Clock, bound
from exarl.records.trace import Tracer

Parts = dict[str, float]


def test_the_end_of_work_is_told_and_that_of_a_wait_is_not() -> None:
    clock = Clock(Tracer(0, "learner", enabled=False))
    told: list[str] = []
    for name in ("env", "wait", "learn", "wait", "checkpoint"):
        clock.tell(partial(told.append, name))
        before = list(told)
        with clock.phase(name):
            assert told == before, "not at its beginning"
    assert told == ["env", "learn", "checkpoint"]
    assert set(clock.seconds) == {"env", "wait", "learn", "checkpoint"}


def test_restarts_are_named_when_they_take_the_time() -> None:
    actors = {"env": 0.3, "inference": 0.1, "restart": 0.6}
    assert "fail" in bound({"wait": 0.9}, actors)[1]
    assert "60%" in bound({"env": 0.3, "learn": 0.1}, actors)[1]
    assert "fail" not in bound({"wait": 0.9}, {**actors, "restart": 0.1})[1]


@pytest.mark.parametrize(
    ("kind", "part", "learner", "actors"),
    [
        ("learning", "80%", {"learn": 0.8, "env": 0.1, "inference": 0.1}, {}),
        ("environment", "70%", {"learn": 0.2, "env": 0.7, "inference": 0.1}, {}),
        ("inference", "60%", {"learn": 0.2, "env": 0.2, "inference": 0.6}, {}),
        ("learning", "90%", {"learn": 0.9, "wait": 0.1}, {"env": 0.1, "wait": 0.9}),
        ("environment", "70%", {"learn": 0.3, "wait": 0.7}, {"env": 0.9, "inference": 0.1}),
        ("inference", "70%", {"learn": 0.3, "wait": 0.7}, {"env": 0.1, "inference": 0.9}),
        # In sync the learner waits for the slowest, and so do the other actors.
        ("uneven", "40%", {"learn": 0.1, "wait": 0.9}, {"env": 0.5, "wait": 0.5}),
        # Turns of equal length: each side waits only for the other.
        ("learning", "50%", {"learn": 0.5, "wait": 0.5}, {"env": 0.5, "wait": 0.5}),
        # Half of the time went into beginning; of the rest learning took a fifth.
        ("environment", "80%", {"start": 0.2, "compile": 0.3, "learn": 0.1, "env": 0.4}, {}),
        (
            "environment",
            "80%",
            {"start": 0.2, "compile": 0.3, "learn": 0.1, "wait": 0.4},
            {"env": 0.5, "wait": 0.5},
        ),
        ("start", "75%", {"compile": 0.75, "learn": 0.25}, {}),
        ("start", "too short", {"learn": 0.01, "env": 0.01, "other": 0.98}, {}),
    ],
)
def test_each_bound_is_told_from_the_split(kind: str, part: str, learner: Any, actors: Any) -> None:
    found, words = bound(learner, actors)
    assert found == kind
    assert found in BOUNDS
    assert part in words


def test_messages_are_named_when_both_sides_wait_for_them() -> None:
    actors = {"env": 0.1, "inference": 0.1, "send": 0.6, "wait": 0.2}
    assert bound({"wait": 0.9}, actors)[0] == "messages"
    assert bound({"learn": 0.9}, actors)[0] == "learning", "its queue is full"
    assert bound({"wait": 0.5, "learn": 0.5}, {"env": 0.4, "wait": 0.6})[0] == "learning"


def test_one_actor_alone_is_not_the_slowest_of_several() -> None:
    split = {"learn": 0.1, "wait": 0.9}, {"env": 0.5, "wait": 0.5}
    assert bound(*split, compared=True)[0] == "uneven"
    assert bound(*split, compared=False)[0] == "messages"
