"""One self-contained HTML page: headings, words, tables and Plotly figures; it loads nothing."""

from __future__ import annotations

import html
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exarl.errors import ConfigError, StorageError, install
from exarl.records.directory import reason
from exarl.report.style import CSS, DARK, SCRIPT

COLORS = ("#2563a8", "#d9622b", "#2f9e6e", "#8b5cb8", "#b8860b", "#c2417c", "#3a9fb5", "#7a7f87")
"""The colours of groups, in order; readable on white and apart for most eyes."""

_LONG = 40  # characters of a cell that may become several lines
_AXIS = {"gridcolor": "#e4e7eb", "linecolor": "#c4ccd4", "zerolinecolor": "#c4ccd4"}
_LAYOUT: dict[str, Any] = {
    "autosize": True,
    "colorway": list(COLORS),
    "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#1f2933"},
    "hovermode": "closest",
    "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
    "margin": {"l": 60, "r": 15, "t": 50, "b": 45},
    "paper_bgcolor": "#fff",
    "plot_bgcolor": "#fff",
}


@dataclass(frozen=True)
class Note:
    """A paragraph that stands out: something is missing or damaged."""

    text: str


@dataclass(frozen=True)
class Code:
    """Text as it is, such as a configuration file."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows of values below a head; columns of numbers are set to the right."""

    head: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Figure:
    """A Plotly figure as plain data."""

    data: tuple[Mapping[str, Any], ...]
    layout: Mapping[str, Any]
    height: int


@dataclass(frozen=True)
class Tabs:
    """Parts of which one is shown at a time, by their labels; the first one first."""

    parts: Mapping[str, Part]


Part = str | Note | Code | Table | Figure | Tabs
"""What a section is made of; a plain string is a paragraph. Text is escaped, never markup."""


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    parts: tuple[Part, ...]


def section(title: str, *parts: Part) -> Section:
    return Section(title, parts)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    return Table(tuple(head), tuple(tuple(row) for row in rows))


def figure(drawn: Any, height: int = 380) -> Figure:
    """``drawn``: a dict of ``data`` and ``layout`` as Plotly documents them, or a Plotly Figure.

    The layout of the page stands below the figure's own; numbers that are not finite become gaps.
    """
    if not isinstance(drawn, Mapping):
        drawn = json.loads(drawn.to_json())  # a plotly.graph_objects.Figure
    layout = _merged(_LAYOUT, drawn.get("layout", {}))
    for axis in {"xaxis", "yaxis"} | {key for key in layout if key[1:].startswith("axis")}:
        layout[axis] = _merged(_AXIS, layout.get(axis, {}))
    return Figure(tuple(drawn["data"]), layout, height)


def tabs(parts: Mapping[str, Part]) -> Tabs:
    return Tabs(dict(parts))


def page(title: str, sections: Sequence[Section], lead: str = "", foot: str = "") -> str:
    """The whole page; ConfigError where Plotly is not installed."""
    library = plotly_script()
    ids = iter(range(10**9))
    body = "".join(_section(number, each, ids) for number, each in enumerate(sections))
    links = "".join(f'<a href="#s{i}">{_text(s.title)}</a>' for i, s in enumerate(sections))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_text(title)}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n"
        f'<header><h1>{_text(title)}</h1><p class="lead">{_text(lead)}</p><nav>{links}</nav></header>'
        f"\n{body}<footer>{_text(foot)}</footer>\n"
        f"<script>{library}</script>\n<script>\nconst DARK = {json.dumps(DARK)};\n{SCRIPT}</script>\n"
        "</body>\n</html>\n"
    )


def write_page(
    path: Path, title: str, sections: Sequence[Section], lead: str = "", foot: str = ""
) -> int:
    """Write ``page`` aside and rename it, so that it is whole or as before; its size in bytes."""
    data = page(title, sections, lead, foot).encode("utf-8", "replace")
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            aside.write_bytes(data)
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {reason(error)}") from error
    return len(data)


def plotly_script() -> str:
    """Plotly's library for browsers, which its package brings along."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ConfigError(f"a report needs Plotly: {install('report')}") from error
    return str(get_plotlyjs())


def _section(number: int, section: Section, ids: Iterable[int]) -> str:
    parts = "\n".join(_part(part, ids) for part in section.parts)
    return f'<section id="s{number}">\n<h2>{_text(section.title)}</h2>\n{parts}\n</section>\n'


def _part(part: Part, ids: Iterable[int]) -> str:
    match part:
        case str():
            return f"<p>{_text(part)}</p>"
        case Note():
            return f'<p class="note">{_text(part.text)}</p>'
        case Code():
            return f"<pre>{_text(part.text)}</pre>"
        case Table():
            return _table(part)
        case Figure():
            return _figure(part, f"f{next(iter(ids))}")
        case Tabs():
            return _tabs(part, ids)


def _table(part: Table) -> str:
    numeric = [
        any(_is_number(row[i]) for row in part.rows)
        and all(_is_number(row[i]) or row[i] in (None, "", "-") for row in part.rows)
        for i in range(len(part.head))
    ]
    kinds = [
        ' class="number"' if numeric[i] else ' class="long"' if _is_long(part, i) else ""
        for i in range(len(part.head))
    ]
    rows = [_row("th", kinds, part.head), *(_row("td", kinds, row) for row in part.rows)]
    return f'<div class="scroll"><table>\n{"".join(rows)}</table></div>'


def _row(tag: str, kinds: Sequence[str], cells: Sequence[Any]) -> str:
    pairs = zip(kinds, cells, strict=True)
    return "<tr>" + "".join(f"<{tag}{kind}>{_cell(v)}</{tag}>" for kind, v in pairs) + "</tr>\n"


def _figure(part: Figure, name: str) -> str:
    data = json.dumps(
        _plain({"data": part.data, "layout": part.layout}),
        allow_nan=False,
        separators=(",", ":"),
        ensure_ascii=False,
    ).replace("<", "\\u003c")  # nothing in it can end the script
    return (
        f'<div class="figure" id="{name}" style="height:{part.height}px"></div>'
        f'<script type="application/json" id="{name}-data">{data}</script>'
    )


def _tabs(part: Tabs, ids: Iterable[int]) -> str:
    buttons, panels = "", ""
    for i, (label, inner) in enumerate(part.parts.items()):
        chosen, shown = ("false", "") if i else ("true", ' class="shown"')
        buttons += f'<button role="tab" aria-selected="{chosen}">{_text(label)}</button>'
        panels += f'<div role="tabpanel"{shown}>{_part(inner, ids)}</div>'
    return f'<div class="tabs"><div class="labels" role="tablist">{buttons}</div>{panels}</div>'


def _is_long(part: Table, i: int) -> bool:
    """Whether a column holds sentences, which may be broken into lines."""
    return any(len(str(row[i])) > _LONG for row in part.rows)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return _text(f"{value:,.1f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}")
    return _text(f"{value:,}" if _is_number(value) else str(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: str) -> str:
    return html.escape(value)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``above`` over ``below``, level by level."""
    merged = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], Mapping) and isinstance(above[key], Mapping):
            merged[key] = _merged(below[key], above[key])
    return merged


def _plain(value: Any) -> Any:
    """``value`` as JSON knows it: arrays as lists, floats of six digits, NaN and infinity as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tolist"):  # a NumPy array or number
        return _plain(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
