"""Which ranks' memory is tried before a run relies on it."""

from __future__ import annotations

import pytest

from exarl.comm.probe import near_and_far


@pytest.mark.parametrize(
    ("ranks", "here", "expected"),
    [
        ([1, 2, 3], {0, 1, 2, 3}, [1]),
        ([1, 2, 3], {0}, [1]),
        ([1, 2, 3], {0, 2}, [2, 1]),
        ([1, 2, 3, 4], {3, 4}, [3, 1]),
        ([], {0}, []),
    ],
)
def test_one_rank_on_this_machine_and_one_elsewhere(
    ranks: list[int], here: set[int], expected: list[int]
) -> None:
    assert near_and_far(ranks, here) == expected
