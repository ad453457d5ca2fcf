"""The board of the newest weights: versions, places, and a writer that overtakes a reader."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.windows import MemoryWindow

from exarl.comm.board import Board

LENGTH, BASE = 5, 16


def made() -> tuple[Board, MemoryWindow]:
    window = MemoryWindow(BASE + Board.size(LENGTH), ranks=2)
    shared: Any = window
    return Board(shared, 1, LENGTH, BASE), window


def weights(version: int) -> np.ndarray:
    return np.arange(LENGTH, dtype=np.float32) + 100 * version


def test_nothing_is_read_before_something_was_written() -> None:
    board, _ = made()
    assert board.version() == 0
    assert board.read() is None


@pytest.mark.parametrize("versions", [[1, 2, 3], [1, 2, 3, 4, 5, 6, 7, 8, 9], [3, 7, 8, 12]])
def test_the_newest_is_read_if_it_is_newer(versions: list[int]) -> None:
    board, _ = made()
    for version in versions:
        board.write(weights(version), version)
        assert board.version() == version
        found = board.read(newer_than=version - 1)
        assert found is not None
        assert found[1] == version
        np.testing.assert_array_equal(found[0], weights(version))
        assert board.read(newer_than=version) is None


def test_a_copy_that_was_overwritten_while_it_was_read_is_read_again() -> None:
    board, window = made()
    board.write(weights(1), 1)
    read, behind = window.read, list(range(2, 6))

    def interrupted(rank: int, offset: int, size: int) -> np.ndarray:
        payload = read(rank, offset, size)
        while behind:  # the writer goes all the way round, to the same place
            version = behind.pop(0)
            board.write(weights(version), version)
        return payload

    window.read = interrupted  # type: ignore[method-assign]
    found = board.read()
    assert found is not None
    assert found[1] == 5
    np.testing.assert_array_equal(found[0], weights(5))


def test_a_writer_that_is_elsewhere_does_not_disturb_a_reader() -> None:
    board, window = made()
    board.write(weights(1), 1)
    read, behind = window.read, [2, 3, 4]

    def interrupted(rank: int, offset: int, size: int) -> np.ndarray:
        while behind:
            version = behind.pop(0)
            board.write(weights(version), version)
        return read(rank, offset, size)

    window.read = interrupted  # type: ignore[method-assign]
    found = board.read()
    assert found is not None
    assert found[1] == 1
    np.testing.assert_array_equal(found[0], weights(1))
