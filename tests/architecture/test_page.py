"""docs/architecture.md and the code agree about the rooms."""

from __future__ import annotations

import re

from benchmarks import rooms
from benchmarks.source import SourceFile


def rows_of_the_table() -> list[tuple[str, ...]]:
    """The rooms of each row of the table under "Rooms", in order."""
    text = rooms.PAGE.read_text(encoding="utf-8")
    section = text.partition("\n## Rooms\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| *(\d+) *\|([^|]*)\|", section, flags=re.M)
    assert [int(number) for number, _ in cells] == list(range(len(cells)))
    return [tuple(re.findall(r"`(\w+)`", names)) for _, names in cells]


def test_the_diagram_is_drawn_from_the_imports() -> None:
    text = rooms.PAGE.read_text(encoding="utf-8")
    assert text == rooms.with_diagram(text, rooms.drawn()), (
        "run: python -m benchmarks.rooms --write"
    )


def test_the_table_has_the_rooms_that_exist(sources: list[SourceFile]) -> None:
    named = [room for row in rows_of_the_table() for room in row]
    assert sorted(named) == sorted({s.room for s in sources if not s.room.startswith("__")})


def test_the_table_has_the_rows_of_the_rule() -> None:
    assert [set(row) for row in rows_of_the_table()] == [set(row) for row in rooms.rows()]


def test_an_arrow_that_follows_from_others_is_left_out() -> None:
    graph = {"a": set(), "b": {"a"}, "c": {"a", "b"}, "d": {"a", "c"}, "e": {"a"}}
    assert rooms.reduced(graph) == {"a": set(), "b": {"a"}, "c": {"b"}, "d": {"c"}, "e": {"a"}}
