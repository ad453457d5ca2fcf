"""Figures of a report, as the plain data that ``page.figure`` accepts."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from exarl.display.curve import AXES, column, evaluated_at, thin
from exarl.report.groups import Group
from exarl.report.page import COLORS, Figure, figure
from exarl.report.read import Run

MOST_POINTS, FEWEST_POINTS, ALL_POINTS = 1000, 50, 30_000  # per line; of all lines of a figure
BAND_POINTS = 300
RATE_POINTS = 50
LANE_CELLS, LANE_LEVELS = 12_000, 150  # of all ranks; more would take long to draw
PANEL_HEIGHT = 330  # pixels per environment
MOST_LINES = 30  # most single runs of a group that are drawn; the band shows the rest
PHASES = {
    "env": "#2563a8",
    "inference": "#2f9e6e",
    "learn": "#b8860b",
    "device": "#8a6508",
    "send": "#8b5cb8",
    "wait": "#d3d9e0",
    "restart": "#c2417c",
    "report": "#3a9fb5",
    "checkpoint": "#1d6f80",
    "compile": "#d9622b",
    "start": "#e8b37a",
    "other": "#8d949c",
}
"""The phases of a run in drawing order, and their colours."""

Curve = tuple[np.ndarray, np.ndarray]
"""x in ascending order, and y; both finite."""


def curves(
    groups: Sequence[Group], take: Callable[[Run], Curve], x: str, y: str, *, decades: bool = False
) -> Figure | None:
    """A line and a band for each group, over the curves that ``take`` gives for its runs.

    Every environment has its own axes, since returns of different environments do not compare. With
    ``decades``, positive values that span decades have a log scale. None without any curve.
    """
    count = sum(len(group.runs) for group in groups)
    points = int(np.clip(ALL_POINTS // max(count, 1), FEWEST_POINTS, MOST_POINTS))
    drawn: dict[str, list[dict[str, object]]] = {}
    values: dict[str, list[np.ndarray]] = {}
    named: set[str] = set()
    for env in environments(groups):
        for i, group in enumerate(groups):
            found = [take(run) for run in group.runs if run.env == env]
            found = [_thinned(curve, points) for curve in found if len(curve[0])]
            if found:
                traces = _group_traces(group.label, found, i)
                traces[-1]["showlegend"] = group.label not in named
                named.add(group.label)
                drawn.setdefault(env, []).extend(traces)
                values.setdefault(env, []).extend(y for _, y in found)
    if not drawn:
        return None
    log = {env: decades and _spans_decades(np.concatenate(v)) for env, v in values.items()}
    data = [
        {**trace, "xaxis": f"x{_number(row)}", "yaxis": f"y{_number(row)}"}
        for row, traces in enumerate(drawn.values(), 1)
        for trace in traces
    ]
    height = 380 if len(drawn) == 1 else 100 + PANEL_HEIGHT * len(drawn)
    return figure({"data": data, "layout": _panels(list(drawn), x, y, log)}, height=height)


def environments(groups: Sequence[Group]) -> list[str]:
    """The environments of all runs, in their order."""
    return list(dict.fromkeys(run.env for group in groups for run in group.runs))


def _panels(envs: Sequence[str], x: str, y: str, log: Mapping[str, bool]) -> dict[str, object]:
    """The layout with one panel per environment, one below the other, each with its name on top."""
    layout: dict[str, Any] = {"annotations": []}
    gap = 0.3 / len(envs)
    height = (1 - gap * (len(envs) - 1)) / len(envs)
    for row, env in enumerate(envs, 1):
        top = 1 - (row - 1) * (height + gap)
        number = _number(row)
        scale = {"type": "log"} if log[env] else {}
        layout[f"xaxis{number}"] = {
            "title": {"text": x}, "rangemode": "tozero", "anchor": f"y{number}",
        }  # fmt: skip
        layout[f"yaxis{number}"] = {
            "title": {"text": y}, "automargin": True, "domain": [max(0.0, top - height), top],
            "anchor": f"x{number}", **scale,
        }  # fmt: skip
        if len(envs) > 1:
            layout["annotations"].append(
                {"text": html.escape(env), "showarrow": False, "font": {"size": 14},
                 "xref": "paper", "yref": "paper", "x": 0, "xanchor": "left", "y": top,
                 "yanchor": "bottom"}
            )  # fmt: skip
    if len(envs) > 1:
        layout |= {"legend": {"y": 1 + 0.12 / len(envs)}}
    return layout


def of_rows(key: str, axis: str) -> Callable[[Run], Curve]:
    """The curve of a column of a run's rows."""

    def take(run: Run) -> Curve:
        return _finite(column(run.rows, AXES[axis][0]), column(run.rows, key))

    return take


def of_evaluations(axis: str) -> Callable[[Run], Curve]:
    """The curve of a run's evaluations."""

    def take(run: Run) -> Curve:
        places = evaluated_at(run.evaluations, run.rows, axis)
        return _finite(places, column(run.evaluations, "reward_mean"))

    return take


def rate_of(key: str) -> Callable[[Run], Curve]:
    """The growth rate of a total over equal spans of time; single rows are too short to measure it."""

    def take(run: Run) -> Curve:
        seconds, totals = _finite(column(run.rows, "time_total_s"), column(run.rows, key))
        if len(seconds) < 3 or seconds[-1] <= seconds[0]:
            return seconds[:0], totals[:0]
        edges = np.linspace(seconds[0], seconds[-1], min(RATE_POINTS, len(seconds)))
        grown = np.diff(np.interp(edges, seconds, totals)) / np.diff(edges)
        return (edges[1:] + edges[:-1]) / 2, grown

    return take


def band(found: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x, low, median and high of several curves, where at least two of them have values.

    Low and high are the quartiles of four or more curves, and the extremes of fewer.
    """
    begin, end = min(x[0] for x, _ in found), max(x[-1] for x, _ in found)
    grid = np.linspace(begin, end, BAND_POINTS)
    values = np.array([np.interp(grid, x, y, np.nan, np.nan) for x, y in found])
    several = np.isfinite(values).sum(0) >= min(2, len(found))
    grid, values = grid[several], values[:, several]
    if not len(grid):
        return grid, grid, grid, grid
    ends = (25, 75) if len(found) >= 4 else (0, 100)
    low, middle, high = np.nanpercentile(values, (ends[0], 50, ends[1]), axis=0)
    return grid, low, middle, high


def bars(rows: Sequence[tuple[str, Mapping[str, float]]], title: str) -> Figure:
    """One horizontal bar per row, stacked from its parts; the legend names the parts."""
    given = dict.fromkeys(name for _, parts in rows for name in parts)
    names = [*(name for name in PHASES if name in given), *(n for n in given if n not in PHASES)]
    labels = [label for label, _ in rows]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": labels,
            "x": [parts.get(name, 0.0) for _, parts in rows],
            "marker": {"color": PHASES.get(name, COLORS[i % len(COLORS)])},
            "hovertemplate": f"%{{y}}<br>{name} %{{x:.3~g}}<extra></extra>",
        }
        for i, name in enumerate(names)
        if any(parts.get(name) for _, parts in rows)
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0.35,
        "xaxis": {"title": {"text": title}},
        "yaxis": {"autorange": "reversed", "automargin": True},
    }
    return figure({"data": data, "layout": layout}, height=150 + 34 * len(rows))


Spent = tuple[float, float, Mapping[str, float]]
"""Begin and end of an interval in seconds, and the seconds of each phase in it."""


def lanes(ranks: Sequence[tuple[str, Sequence[Spent]]]) -> Figure:
    """One lane per rank: its activities over time, stacked by their shares where there is room.

    ``ranks`` are names with intervals in ascending order; time that no phase counts is ``other``.
    """
    levels = int(np.clip(LANE_LEVELS // max(len(ranks), 1), 1, 12))
    columns = int(np.clip(LANE_CELLS // max(levels * len(ranks), 1), 40, 240))
    last = max((spans[-1][1] for _, spans in ranks if spans), default=1.0)
    centres = (np.arange(columns) + 0.5) * last / columns
    quantiles = (np.arange(levels) + 0.5) / levels
    names = [*PHASES]
    z = np.full((len(ranks), levels, columns), np.nan)
    for row, (_, spans) in enumerate(ranks):
        if spans:
            begins, ends = (np.array([span[i] for span in spans]) for i in (0, 1))
            at = np.searchsorted(begins, centres, "right") - 1
            known = (at >= 0) & (centres < ends[at])
            used, of = np.unique(at[known], return_inverse=True)
            parts = _parts([spans[i] for i in used])
            filled = parts.argmax(1)[:, None]  # [spans, levels]: the longest ...
            if levels > 1:  # ... or what the lane is filled with at each level
                sums = parts.cumsum(1)
                filled = (sums[:, :, None] < quantiles * sums[:, -1:, None]).sum(1)
            z[row][:, known] = filled[of].T
    edges = np.repeat(np.arange(len(names) + 1) / len(names), 2)[1:-1].tolist()
    scale = [[edge, PHASES[names[i // 2]]] for i, edge in enumerate(edges)]
    middles = np.arange(len(ranks)) + 0.5
    inner = (middles[:, None] - 0.45 + 0.9 * quantiles) if levels > 1 else middles[:, None]
    gap = np.full((len(ranks), 1, columns), np.nan)  # between two lanes
    rows = np.concatenate([z, gap], 1) if levels > 1 else z
    places = np.concatenate([inner, middles[:, None] + 0.5], 1) if levels > 1 else inner
    heat = {
        "type": "heatmap", "x": centres, "y": places.ravel(), "z": rows.reshape(-1, columns),
        "zmin": -0.5, "zmax": len(names) - 0.5, "colorscale": scale, "showscale": False,
        "hoverinfo": "x",
    }  # fmt: skip
    legend = [
        {"type": "scatter", "mode": "markers", "x": [None], "y": [None], "name": names[i],
         "marker": {"symbol": "square", "size": 11, "color": PHASES[names[i]]}}
        for i in np.unique(z[np.isfinite(z)]).astype(int)
    ]  # fmt: skip
    every = -(-len(ranks) // 40)  # names that fit
    ticks = {"tickvals": middles[::every], "ticktext": [name for name, _ in ranks][::every]}
    layout = {
        "xaxis": {"title": {"text": "seconds"}, "range": [0, last], "showgrid": False},
        "yaxis": {"range": [len(ranks), 0], "automargin": True, "showgrid": False, "zeroline": False,
                  **ticks},
    }  # fmt: skip
    height = int(np.clip(120 + 34 * len(ranks), 220, 900))
    return figure({"data": [heat, *legend], "layout": layout}, height=height)


def _parts(spans: Sequence[Spent]) -> np.ndarray:
    """The seconds by phase [spans, PHASES]."""
    number = {name: i for i, name in enumerate(PHASES)}
    parts = np.zeros((len(spans), len(PHASES)))
    for i, (begin, end, seconds) in enumerate(spans):
        rest = end - begin
        for name, value in seconds.items():
            parts[i, number.get(name, number["other"])] += value
            rest -= value
        parts[i, number["other"]] += max(0.0, rest)
    return parts


def scatter(
    rows: Sequence[Mapping[str, float]], key: str, result: str, of: str = "agents"
) -> Figure:
    """One point per agent of a population, or per run: its value of ``key`` and its result."""
    x, y = _finite(column(rows, key), column(rows, result))
    wide = bool(len(x) and x.min() > 0 and x.max() > 20 * x.min())
    points = {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": {"opacity": 0.6}}
    centre = {"type": "scatter", "mode": "lines", "name": "median"}
    values = np.unique(x)
    if 1 < len(values) < len(x):  # several seeds per value
        medians = [float(np.median(y[x == value])) for value in values]
        data = [points | {"name": of}, centre | {"x": values, "y": medians}]
    else:
        data = [points | {"name": of, "showlegend": False}]
    decades = {"type": "log", "dtick": 1, "exponentformat": "power"} if wide else {}
    axis = {"title": {"text": key}, **decades}
    return figure(
        {"data": data, "layout": {"xaxis": axis, "yaxis": {"title": {"text": "mean return"}}}}
    )


def _number(row: int) -> str:
    """The number of a panel's axes in Plotly's names: none for the first."""
    return "" if row == 1 else str(row)


def _group_traces(label: str, found: Sequence[Curve], i: int) -> list[dict[str, object]]:
    color, dash = COLORS[i % len(COLORS)], ("solid", "dash", "dot")[i // len(COLORS) % 3]
    line = {"type": "scatter", "legendgroup": label, "mode": "lines"}
    name = label if len(found) == 1 else f"{label} ({len(found)} runs)"
    if len(found) == 1:
        x, y = found[0]
        marked = {"mode": "lines+markers" if len(x) <= 20 else "lines"}
        return [
            {**line, **marked, "x": x, "y": y, "name": name, "line": {"color": color, "dash": dash}}
        ]
    x, low, middle, high = band(found)
    thin_line = {"color": color, "width": 0.8}
    singles = [
        {**line, "x": a, "y": b, "line": thin_line, "opacity": 0.35, "showlegend": False,
         "hoverinfo": "skip"}
        for a, b in (_thinned(curve, BAND_POINTS) for curve in found[:MOST_LINES])
    ]  # fmt: skip
    area = {
        **line,
        "x": np.concatenate([x, x[::-1]]),
        "y": np.concatenate([high, low[::-1]]),
        "fill": "toself",
        "fillcolor": color,
        "opacity": 0.16,
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    middle_line = {"color": color, "width": 2.4, "dash": dash}
    return [area, *singles, {**line, "x": x, "y": middle, "name": name, "line": middle_line}]


def _spans_decades(values: np.ndarray) -> bool:
    low, high = np.percentile(values, (2, 98))
    return bool(values.min() > 0 and high > 100 * low)


def _thinned(curve: Curve, points: int) -> Curve:
    x, values = thin(curve[0], {"y": curve[1]}, points)
    return x, values["y"]


def _finite(x: np.ndarray, y: np.ndarray) -> Curve:
    known = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    order = known[np.argsort(x[known], kind="stable")]
    return x[order], y[order]
