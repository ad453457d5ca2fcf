"""Waiting is prompt and leaves the core alone."""

from __future__ import annotations

import time

import pytest

from exarl.comm.waiting import wait_for


def ready_at(moment: float) -> bool | None:
    return True if time.perf_counter() >= moment else None


def test_what_is_there_is_returned_at_once() -> None:
    polls: list[int] = []

    def poll() -> str | None:
        polls.append(1)
        return "here" if len(polls) == 3 else None

    assert wait_for(poll) == "here"
    assert len(polls) == 3


@pytest.mark.parametrize("value", [0, False, "", []])
def test_anything_but_none_is_an_answer(value: object) -> None:
    assert wait_for(lambda: value) is value


def test_a_long_wait_sleeps_and_ends_promptly() -> None:
    late = []
    for _ in range(2):
        moment, busy = time.perf_counter() + 1, time.process_time()
        assert wait_for(lambda at=moment: ready_at(at))
        busy = time.process_time() - busy
        late.append(time.perf_counter() - moment)
        assert busy < 0.1
    assert min(late) < 0.02  # others may hold the core once


def test_a_short_wait_is_short() -> None:
    late = []
    for _ in range(20):
        moment = time.perf_counter() + 0.002
        wait_for(lambda at=moment: ready_at(at))
        late.append(time.perf_counter() - moment)
    assert min(late) < 0.002


def test_an_error_in_the_poll_ends_the_wait() -> None:
    def poll() -> None:
        raise RuntimeError("the other side is gone")

    with pytest.raises(RuntimeError, match="gone"):
        wait_for(poll)
