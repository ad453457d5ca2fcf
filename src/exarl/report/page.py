"""A self-contained HTML page of headings, text, tables and Plotly figures, without external files."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from exarl.errors import ConfigError, StorageError, install
from exarl.records.directory import reason
from exarl.records.replacing import replacing
from exarl.report.style import CSS, DARK, SCRIPT

if TYPE_CHECKING:
    import plotly.graph_objects

COLORS = ("#2563a8", "#d9622b", "#2f9e6e", "#8b5cb8", "#b8860b", "#c2417c", "#3a9fb5", "#7a7f87")
"""The colours of groups, in order; readable on white and distinct for most readers."""

Cell: TypeAlias = "str | float | None"
"""The content of a table's cell; None becomes a dash."""

_LONG = 40  # characters from which on a column may wrap its lines
_AXIS = {"gridcolor": "#e4e7eb", "linecolor": "#c4ccd4", "zerolinecolor": "#c4ccd4"}
_LAYOUT: dict[str, object] = {
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
    """A highlighted paragraph: something is missing or damaged."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows of values below a head; columns of numbers are aligned to the right."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Figure:
    """A Plotly figure as plain data."""

    data: tuple[Mapping[str, object], ...]
    layout: Mapping[str, object]
    height: int


@dataclass(frozen=True)
class Tabs:
    """Labelled parts of which one is visible at a time, the first at first."""

    parts: Mapping[str, Part]


Part = str | Note | Table | Figure | Tabs
"""A part of a section; a plain string is a paragraph. All text is escaped."""


@dataclass(frozen=True)
class Section:
    """A heading and the parts below it."""

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Fragment:
    """A section as HTML with an empty element per figure; ``figures`` are JSON by the elements' ids."""

    html: str
    figures: Mapping[str, str]


def section(title: str, *parts: Part) -> Section:
    return Section(title, parts)


def table(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table:
    return Table(tuple(head), tuple(tuple(row) for row in rows))


def figure(drawn: Mapping[str, Any] | plotly.graph_objects.Figure, height: int = 380) -> Figure:
    """A figure from ``data`` and ``layout`` as Plotly documents them, or from a Plotly Figure.

    The figure's layout overrides that of the page; numbers that are not finite become gaps.
    """
    if not isinstance(drawn, Mapping):
        drawn = json.loads(drawn.to_json())  # a plotly.graph_objects.Figure
    layout = _merged(_LAYOUT, drawn.get("layout", {}))
    axes = {"xaxis", "yaxis"} | {key for key in layout if key[1:].startswith("axis")}
    layout = _merged(dict.fromkeys(sorted(axes), _AXIS), layout)
    return Figure(tuple(drawn["data"]), layout, height)


def tabs(parts: Mapping[str, Part]) -> Tabs:
    return Tabs(dict(parts))


def page(title: str, sections: Sequence[Section], lead: str = "", foot: str = "") -> str:
    """The page as HTML; ConfigError when Plotly is not installed."""
    library = plotly_script()
    body = "".join(_section(fragment(each, f"s{i}")) for i, each in enumerate(sections))
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
    try:
        with replacing(path) as aside:
            aside.write_bytes(data)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {reason(error)}") from error
    return len(data)


def plotly_script() -> str:
    """Plotly's JavaScript library, from its Python package; ConfigError without it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ConfigError(f"a report needs Plotly: {install('report')}") from error
    return str(get_plotlyjs())


def fragment(section: Section, name: str) -> Fragment:
    """The section as HTML; ``name`` is the id of its element, and how those of its figures begin."""
    drawn: dict[str, str] = {}
    parts = "\n".join(_part(part, name, drawn) for part in section.parts)
    html = f'<section id="{name}">\n<h2>{_text(section.title)}</h2>\n{parts}\n</section>\n'
    return Fragment(html, drawn)


def _section(part: Fragment) -> str:
    """A section and, behind it, the data of its figures."""
    data = (
        f'<script type="application/json" id="{name}-data">{json}</script>\n'
        for name, json in part.figures.items()
    )
    return part.html + "".join(data)


def _part(part: Part, name: str, drawn: dict[str, str]) -> str:
    match part:
        case str():
            return f"<p>{_text(part)}</p>"
        case Note():
            return f'<p class="note">{_text(part.text)}</p>'
        case Table():
            return _table(part)
        case Figure():
            id = f"{name}-f{len(drawn)}"
            drawn[id] = _figure_json(part)
            return f'<div class="figure" id="{id}" style="height:{part.height}px"></div>'
        case Tabs():
            return _tabs(part, name, drawn)


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


def _row(tag: str, kinds: Sequence[str], cells: Sequence[Cell]) -> str:
    pairs = zip(kinds, cells, strict=True)
    return "<tr>" + "".join(f"<{tag}{kind}>{_cell(v)}</{tag}>" for kind, v in pairs) + "</tr>\n"


def _figure_json(part: Figure) -> str:
    return json.dumps(
        _plain({"data": part.data, "layout": part.layout}),
        allow_nan=False,
        separators=(",", ":"),
        ensure_ascii=False,
    ).replace("<", "\\u003c")  # so that no text can end the script


def _tabs(part: Tabs, name: str, drawn: dict[str, str]) -> str:
    buttons, panels = "", ""
    for i, (label, inner) in enumerate(part.parts.items()):
        chosen, shown = ("false", "") if i else ("true", ' class="shown"')
        buttons += f'<button role="tab" aria-selected="{chosen}">{_text(label)}</button>'
        panels += f'<div role="tabpanel"{shown}>{_part(inner, name, drawn)}</div>'
    return f'<div class="tabs"><div class="labels" role="tablist">{buttons}</div>{panels}</div>'


def _is_long(part: Table, i: int) -> bool:
    """Whether a column contains sentences, which may wrap."""
    return any(len(str(row[i])) > _LONG for row in part.rows)


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return _text(f"{value:,.1f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}")
    return _text(f"{value:,}" if _is_number(value) else str(value))


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: str) -> str:
    return html.escape(value)


def _merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """``above`` over ``below``, level by level."""
    merged = {**below, **above}
    for key, lower in below.items():
        upper = above.get(key)
        if isinstance(lower, Mapping) and isinstance(upper, Mapping):
            merged[key] = _merged(lower, upper)
    return merged


def _plain(value: object) -> object:
    """``value`` for JSON: arrays as lists, floats with six digits, NaN and infinity as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tolist"):  # a NumPy array or number
        return _plain(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
