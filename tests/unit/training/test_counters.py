"""How far a run has come: what is counted, and what is taken from a checkpoint."""

from __future__ import annotations

import pytest

from exarl.training.actors import Tally
from exarl.training.counters import Counters, stored_counters
from exarl.training.rounds import Report
from exarl.types import FAILURES


def test_counters_are_whole_numbers() -> None:
    assert stored_counters({"steps": 7}) == Counters(steps=7)
    for wrong in (7.0, True, "7", None):
        with pytest.raises(TypeError):
            stored_counters({"steps": wrong})


def test_every_count_of_a_checkpoint_is_checked() -> None:
    for name, value in vars(Counters()).items():
        if type(value) is int:
            assert getattr(stored_counters({name: 3}), name) == 3
            with pytest.raises(TypeError):
                stored_counters({name: 3.0})


def test_failures_are_added_up_by_environment_and_by_kind() -> None:
    counters = Counters()
    assert counters.failures_by_kind() == dict.fromkeys(FAILURES, 0)
    counters.add(Report(failures=[[12, 1, 0, 2, 0, 0], [3, 0, 1, 0, 0, 0]]), updates=0)
    counters.add(Report(failures=[[12, 4, 0, 0, 0, 1]]), updates=0)
    assert counters.failures == {"12": [5, 0, 2, 0, 1], "3": [0, 1, 0, 0, 0]}
    by_kind = dict(zip(FAILURES, (5, 1, 2, 0, 1), strict=True))
    assert counters.failures_by_kind() == by_kind
    report = counters.failure_report()
    environments = report.pop("environments")
    assert report == by_kind
    assert list(environments) == ["3", "12"], "in the order of their numbers"
    assert environments["3"] == {FAILURES[1]: 1}
    assert environments["12"] == {FAILURES[0]: 5, FAILURES[2]: 2, FAILURES[4]: 1}


def test_what_became_of_the_blocks_of_several_learners_adds_up() -> None:
    one, other = Tally(10, 2, 3, 4, 1), Tally(20, 5, 0, 1, 2)
    assert one + other == other + one == Tally(30, 7, 3, 5, 3)
    assert one + Tally() == one
    blocks = {"produced": 30, "left": 7, "dropped": 3, "redundant": 5}
    assert (one + other).blocks() == blocks, "missing actors are no blocks"
