"""Rounds of several learners, over mailboxes in one process."""

from __future__ import annotations

import threading
from typing import Any

from support.learning import discrete_spec, random_block

from exarl.comm.mailbox import Mailbox
from exarl.training.rounds import Decision, Report, Rounds


def test_a_nudge_that_comes_late_opens_no_empty_round() -> None:
    boxes: list[Mailbox] = []
    boxes += [Mailbox(0, 2, others := []), Mailbox(1, 2, others)]
    held: list[Any] = []

    def deliver(source: int, tag: int, payload: bytes) -> None:
        held.append((source, tag, payload))

    # What learner 1 tells learner 0 first, its nudge, is under way for long.
    others += [deliver, boxes[1].deliver]
    first, second = Rounds(boxes[0]), Rounds(boxes[1])
    block = random_block(discrete_spec(), 0)
    assert not second._opens(ready=True, should_stop=lambda: False)
    others[0] = boxes[0].deliver
    assert first._opens(ready=True, should_stop=lambda: False)
    report, found = Report.of(block, 0), []

    def follow() -> None:
        assert second.wait(lambda: block, lambda: False) is block
        found.append(second.decide(report, False, False, False))

    follower = threading.Thread(target=follow)
    follower.start()
    decided = first.decide(report, False, False, False)
    follower.join()
    assert isinstance(found[0], Decision) and decided.report.blocks == found[0].report.blocks == 2
    boxes[0].deliver(*held[0])
    assert not first._opens(ready=False, should_stop=lambda: False), "its block has been trained"
    assert not second._opens(ready=True, should_stop=lambda: False)
    assert first._opens(ready=False, should_stop=lambda: False)
