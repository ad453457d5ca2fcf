"""One-sided memory on an MPI that does nothing before it is told to flush."""

# ruff: noqa: N802 - the names are those of mpi4py

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from exarl.comm.window import Window

Buffer = tuple[np.ndarray, int, str]


class LazyWin:
    """An MPI window on one rank. Every operation waits for ``Flush``."""

    def __init__(self, size: int) -> None:
        self.memory = np.zeros(size, np.uint8)
        self._waiting: list[Callable[[], None]] = []

    def tomemory(self) -> memoryview:
        return self.memory.data

    def Flush(self, rank: int) -> None:
        while self._waiting:
            self._waiting.pop(0)()

    def Get(self, target: Buffer, rank: int, place: tuple[int, int, str]) -> None:
        offset, size, _ = place
        self._later(lambda: np.copyto(target[0], self.memory[offset : offset + size]))

    def Put(self, given: Buffer, rank: int, place: tuple[int, int, str]) -> None:
        offset, size, _ = place
        self._later(lambda: np.copyto(self.memory[offset : offset + size], given[0]))

    def Get_accumulate(
        self, given: Buffer, target: Buffer, rank: int, place: tuple[int, int, str], kind: str
    ) -> None:
        offset, count, _ = place
        self._later(lambda: np.copyto(target[0], self._words(offset, count)))

    def Fetch_and_op(
        self, given: Buffer, target: Buffer, rank: int, offset: int, kind: str
    ) -> None:
        def happen() -> None:
            word = self._words(offset, 1)
            target[0][:] = word
            word[:] = {"SUM": word + given[0], "REPLACE": given[0], "NO_OP": word}[kind]

        self._later(happen)

    def Compare_and_swap(
        self, given: Buffer, expected: Buffer, target: Buffer, rank: int, offset: int
    ) -> None:
        def happen() -> None:
            word = self._words(offset, 1)
            target[0][:] = word
            word[:] = np.where(word == expected[0], given[0], word)

        self._later(happen)

    def Lock_all(self, _: int) -> None:
        pass

    def _words(self, offset: int, count: int) -> np.ndarray:
        return self.memory[offset : offset + 8 * count].view(np.int64)

    def _later(self, operation: Callable[[], None]) -> None:
        self._waiting.append(operation)


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Window:
    """64 bytes."""
    kinds = {name: name for name in ("BYTE", "INT64_T", "SUM", "REPLACE", "NO_OP")}
    info = SimpleNamespace(Create=lambda hints: SimpleNamespace(Free=lambda: None))
    win = SimpleNamespace(Allocate=lambda size, *_: LazyWin(size))
    mpi = SimpleNamespace(Info=info, Win=win, MODE_NOCHECK=0, **kinds)
    monkeypatch.setattr("exarl.comm.window._mpi", lambda: mpi)
    for name in ("meet", "unname_shared_memory", "_check_room"):
        monkeypatch.setattr(f"exarl.comm.window.{name}", lambda *_: None)
    alone: Any = None
    return Window(alone, 64)


def test_bytes_are_there_when_an_access_returns(window: Window) -> None:
    payload = np.arange(1, 12, dtype=np.uint8)
    window.write(0, 5, payload)
    memory = window._window.memory  # type: ignore[attr-defined]
    assert memory[5:16].tolist() == payload.tolist()
    assert window.read(0, 5, 11).tolist() == payload.tolist()
    assert window.read(0, 0, 6).tolist() == [0, 0, 0, 0, 0, 1]


def test_words_are_read_and_changed_when_an_access_returns(window: Window) -> None:
    assert window.set(0, 8, 40) == 0
    assert window.add(0, 8, 2) == 40
    assert window.get(0, 8) == 42
    assert window.words(0, 0, 3).tolist() == [0, 42, 0]


def test_a_word_is_swapped_only_if_it_is_the_expected_one(window: Window) -> None:
    assert window.swap_if(0, 16, 0, 7)
    assert not window.swap_if(0, 16, 0, 9)
    assert window.get(0, 16) == 7
    assert window.swap_and_count(0, 16, 7, 8, counter=24) == 0
    assert window.swap_and_count(0, 16, 7, 9, counter=24) is None
    assert window.words(0, 16, 2).tolist() == [8, 2], "what was tried is counted"
