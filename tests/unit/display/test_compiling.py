"""How compiling is shown and counted."""

from __future__ import annotations

import re
import time

import pytest

from exarl.display.compiling import Compiling
from exarl.records.clock import Clock
from exarl.records.trace import Tracer


class Shown:
    """A display that remembers, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def busy(self, text: str) -> None:
        self.lines.append(f"busy: {text}")

    def note(self, text: str) -> None:
        self.lines.append(text)

    def update(self, row: object) -> None:
        raise AssertionError(row)

    def close(self) -> None:
        raise AssertionError


@pytest.fixture
def clock() -> Clock:
    return Clock(Tracer(0, "learner", enabled=False))


def test_the_first_is_shown_while_it_lasts_and_all_are_counted(clock: Clock) -> None:
    shown = Shown()
    compiling = Compiling(clock, shown)
    with clock.phase("learn"):
        with compiling():
            assert shown.lines == ["busy: compiling the first update ..."]
            time.sleep(0.03)
        time.sleep(0.01)
    (busy, over, note) = shown.lines
    assert over == "busy: "
    assert re.fullmatch(r"compiled the first update in 0\.\d s", note)
    first = clock.seconds["compile"]
    assert first >= 0.03
    assert 0.01 <= clock.seconds["learn"] < 0.03 + 0.01 + 1
    with clock.phase("learn"), compiling():
        time.sleep(0.02)
    assert shown.lines == [busy, over, note]
    assert clock.seconds["compile"] >= first + 0.02


def test_a_second_is_counted_once(clock: Clock) -> None:
    before = time.perf_counter()
    with clock.phase("learn"), Compiling(clock, Shown())():
        time.sleep(0.02)
    assert sum(clock.seconds.values()) <= time.perf_counter() - before


def test_one_that_fails_is_not_said_to_be_done(clock: Clock) -> None:
    shown = Shown()
    with pytest.raises(ValueError, match="shapes"), Compiling(clock, shown)():
        raise ValueError("shapes")
    assert shown.lines == ["busy: compiling the first update ...", "busy: "]
