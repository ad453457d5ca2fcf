"""Draw the rooms of EXARL and who imports whom, as it stands in docs/architecture.md.

    python -m benchmarks.rooms [--write]

Run it from the root of the repository. The diagram is drawn from the import graph, with the rows of
tests/architecture/test_rooms.py. An arrow is left out where others lead to the same room.
``--write`` puts it into the page; a test fails while the page has another.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.source import SourceFile, read_sources

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
RULES = ROOT / "tests" / "architecture" / "test_rooms.py"
BEGIN, END = "<!-- rooms: python -m benchmarks.rooms --write -->", "<!-- end of rooms -->"

Rows = Sequence[Sequence[str]]
Graph = Mapping[str, set[str]]


def rows() -> Rows:
    """``ROWS`` of the test, lowest first, without the modules of the public names."""
    tree = ast.parse(RULES.read_text(encoding="utf-8"))
    values = [
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "ROWS"
    ]
    assert len(values) == 1 and values[0] is not None, f"{RULES} has no ROWS"
    every: Rows = ast.literal_eval(values[0])
    return [row for row in every if not any(room.startswith("__") for room in row)]


def imports(sources: Sequence[SourceFile], rooms: set[str]) -> dict[str, set[str]]:
    """For each room, the other rooms that its modules import."""
    graph: dict[str, set[str]] = {room: set() for room in rooms}
    for source in sources:
        for found in source.imports:
            _, _, below = found.module.partition(".")
            room = below.partition(".")[0]
            if found.package == "exarl" and {room, source.room} <= rooms and room != source.room:
                graph[source.room].add(room)
    return graph


def reduced(graph: Graph) -> dict[str, set[str]]:
    """The graph without edges that follow from others; it has no cycles."""

    def reach(room: str) -> set[str]:
        return graph[room].union(*(reach(next_) for next_ in graph[room]))

    return {
        room: targets - set().union(*(reach(target) for target in targets))
        for room, targets in graph.items()
    }


def diagram(rows: Rows, graph: Graph) -> str:
    """A Mermaid flowchart, the highest row on top."""
    lines = ["```mermaid", "flowchart TD"]
    for number in reversed(range(len(rows))):
        inside = [f"    {line}" for line in ("direction LR", *rows[number])]
        lines += [f'  subgraph row{number}["row {number}"]', *inside, "  end"]
    for row in reversed(rows):
        for room in row:
            targets = " & ".join(sorted(graph[room]))
            lines += [f"  {room} --> {targets}"] if targets else []
    return "\n".join([*lines, "```"])


def with_diagram(text: str, drawn: str) -> str:
    """The page's text with this diagram between the two marks."""
    pattern = f"{re.escape(BEGIN)}.*?{re.escape(END)}"
    fresh = f"{BEGIN}\n{drawn}\n{END}"
    text, count = re.subn(pattern, lambda _: fresh, text, flags=re.S)
    assert count == 1, f"{PAGE.name} has {count} places for the diagram of rooms"
    return text


def drawn() -> str:
    """The diagram of the code as it is now."""
    known = rows()
    graph = imports(read_sources(), {room for row in known for room in row})
    return diagram(known, reduced(graph))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rooms",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--write", action="store_true", help="put it into docs/architecture.md")
    options = parser.parse_args()
    if options.write:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_diagram(text, drawn()), encoding="utf-8")
    else:
        print(drawn())


if __name__ == "__main__":
    main()
