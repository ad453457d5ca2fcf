"""A page holds what it was given, as text, and loads nothing."""

from __future__ import annotations

import json
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exarl.errors import ConfigError, StorageError
from exarl.report.page import Note, figure, page, section, table, tabs, write_page

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & \"'"


class Read(HTMLParser):
    """The tags of a page, the text between them, and the figures' data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.figures: list[Any] = []
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = dict(attrs).get("type") or tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "application/json":
            self.figures.append(json.loads(data))
        elif self._inside not in ("script", "style"):
            self.text += data


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the five megabytes of the library, which would be parsed again and again."""
    monkeypatch.setattr("exarl.report.page.plotly_script", lambda: "var Plotly;")


def test_everything_given_is_there_as_text() -> None:
    drawn = figure({"data": [{"x": [1], "y": [2], "name": HOSTILE}]})
    parts = [HOSTILE, Note(HOSTILE), table([HOSTILE], [[HOSTILE]])]
    seen = Read(page(HOSTILE, [section(HOSTILE, *parts, tabs({HOSTILE: drawn}))], HOSTILE, HOSTILE))
    assert seen.text.count(HOSTILE) == 11  # title twice, heading, link, lead, foot, five in parts
    assert seen.figures[0]["data"][0]["name"] == HOSTILE
    assert [tag for tag, _ in seen.tags].count("script") == 3  # data, library, our own
    assert not [tag for tag, _ in seen.tags if tag == "img"]


def test_nothing_is_loaded() -> None:
    seen = Read(page("a", [section("b", figure({"data": []}))]))
    for tag, attributes in seen.tags:
        assert tag not in ("link", "iframe", "img"), tag
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")


def test_figures_become_plain_data_with_gaps_for_what_is_not_finite() -> None:
    x = np.array([1.0, math.nan, math.inf, 1 / 3])
    drawn = {"data": [{"x": x, "y": (np.int64(3), 2)}], "layout": {"xaxis": {"title": "t"}}}
    (seen,) = Read(page("a", [section("b", figure(drawn))])).figures
    assert seen["data"] == [{"x": [1.0, None, None, 0.333333], "y": [3, 2]}]
    assert seen["layout"]["xaxis"]["title"] == "t"
    assert seen["layout"]["xaxis"]["gridcolor"]  # and the page's own look


def test_a_figure_of_plotly_itself() -> None:
    plotly = pytest.importorskip("plotly.graph_objects")
    drawn = figure(plotly.Figure(plotly.Bar(x=["a", "b"], y=[1, 2])))
    (seen,) = Read(page("a", [section("b", drawn)])).figures
    assert seen["data"][0]["type"] == "bar"
    assert seen["data"][0]["x"] == ["a", "b"]


def test_cells_of_a_table() -> None:
    rows = [("a", 1234567, 0.123456, None), ("b", 2, 12345.67, 3)]
    text = page("t", [section("s", table(["name", "n", "x", "m"], rows))])
    cells = re.findall(r"<td[^>]*>(.*?)</td>", text)
    assert cells == ["a", "1,234,567", "0.1235", "-", "b", "2", "12,345.7", "3"]
    assert re.findall(r"<th([^>]*)>", text) == ["", *[' class="number"'] * 3]


def test_the_page_is_whole_or_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    assert write_page(path, "first", []) == path.stat().st_size
    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(StorageError, match="No space left"):
        write_page(path, "second", [])
    assert "first" in path.read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def full_disk(self: Path, data: bytes) -> int:
    self.touch()
    raise OSError(28, "No space left on device")


def test_without_plotly_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ConfigError, match=r"exarl\[report\]"):
        page("a", [])


def test_the_library_is_inlined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly")
    monkeypatch.undo()
    text = page("a", [section("b", figure({"data": []}), figure({"data": []}))])
    assert text.count("window.Plotly = Plotly") == 1
    assert len(text) > 1_000_000
