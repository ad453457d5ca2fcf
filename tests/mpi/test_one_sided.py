"""One-sided memory: pools and the board under load, checked byte by byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers_jobs import PYTHON, run, under_mpi

BODIES = Path(__file__).parent / "one_sided.py"
ITEMS = 300

RunBody = Callable[[str, int], list[dict[str, Any]]]


@pytest.fixture
def body(tmp_path: Path) -> RunBody:
    """``body(name, ranks)``: what each rank found."""

    def start(name: str, ranks: int) -> list[dict[str, Any]]:
        run(under_mpi(ranks, [PYTHON, BODIES, name, tmp_path])).ok()
        return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(ranks)]

    return start


def test_a_queue_on_another_rank_keeps_its_order(body: RunBody) -> None:
    found = body("queue_far", 2)[0]
    assert found["mine"] == [[1, number] for number in range(ITEMS)]


@pytest.mark.parametrize("name", ["queue_many", "queue_consumers"])
def test_every_item_is_taken_exactly_once(body: RunBody, name: str) -> None:
    found = body(name, 4)[0]
    producers = [1, 2, 3] if name == "queue_many" else [0]
    assert sorted(found["seen"]) == sorted([p, n] for p in producers for n in range(ITEMS))
    assert found["drop"] == 0


def test_a_stack_gives_every_item_once_and_the_newest_first(body: RunBody) -> None:
    found = body("stack", 3)[0]
    assert sorted(found["seen"]) == [[0, number] for number in range(ITEMS)]


def test_overwriting_counts_what_it_drops(body: RunBody) -> None:
    found = body("overwriting", 3)[0]
    assert len(found["seen"]) + found["drop"] == ITEMS
    assert len({tuple(pair) for pair in found["seen"]}) == len(found["seen"])


def test_a_buffer_shows_each_reader_only_newer_items(body: RunBody) -> None:
    for found in body("buffer", 3)[1:]:
        numbers = [number for _, number in found["mine"]]
        assert numbers == sorted(set(numbers))
        assert numbers[-1] == ITEMS - 1


def test_the_board_is_never_torn(body: RunBody) -> None:
    for found in body("board", 4)[1:]:
        assert found["last"] == 2_000
        assert found["reads"] > 0


def test_words_are_changed_atomically(body: RunBody) -> None:
    for found in body("words", 4):
        assert found == {"count": 800, "full": -1, "left": -(2**63)}


def test_the_probe_finds_that_one_sided_access_progresses_here(body: RunBody) -> None:
    (one, other) = body("probe", 2)
    assert one == other
    assert 0 < one["latency"] < 0.05
