"""Files of runs that grow are read on from where they were, and what is kept is bounded."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from exarl.dashboard.tail import Rows, Tail, sampled


def lines(first: int, last: int) -> str:
    return "".join(json.dumps({"timesteps_total": i}) + "\n" for i in range(first, last))


def test_a_tail_gives_whole_new_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    tail = Tail(path)
    assert tail.read() == ([], False)
    path.write_bytes(b"one\ntwo\nthr")
    assert tail.read() == ([b"one", b"two"], True)
    with path.open("ab") as file:
        file.write(b"ee\n")
    assert tail.read() == ([b"three"], False)
    assert tail.read() == ([], False)


def test_a_file_that_was_cut_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one\ntwo\n")
    tail = Tail(path)
    tail.read()
    path.write_bytes(b"new\n")
    assert tail.read() == ([b"new"], True)


def test_rows_stay_few_and_include_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "result.jsonl"
    rows = Rows(path, most=50)
    assert rows.update() == []
    for at in range(0, 1000, 100):
        with path.open("a") as file:
            file.write(lines(at, at + 99) + "damaged\n")
        found = [row["timesteps_total"] for row in rows.update()]
        assert len(found) <= 51
        assert found[0] == 0 and found[-1] == at + 98
        assert found == sorted(found)
    gaps = {b - a for a, b in itertools.pairwise(found[:-1])}
    assert max(gaps) <= 2 * min(gaps), "they are spread evenly"


@pytest.mark.parametrize("count", [0, 1, 7, 40, 41, 5000])
def test_a_sample_has_the_first_and_the_newest_row(tmp_path: Path, count: int) -> None:
    path = tmp_path / "result.jsonl"
    path.write_text(lines(0, count) + '{"timesteps_total": 99')
    found = [row["timesteps_total"] for row in sampled(path, 40)]
    assert len(found) <= 42
    assert found == sorted(set(found))
    if count:
        assert (found[0], found[-1]) == (0, count - 1)
    assert count < 40 or len(found) > 15
