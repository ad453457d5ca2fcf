"""The learning curve of a run as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from exarl.records.metrics import finite
from exarl.records.replacing import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINTS = 1200  # one per pixel column: more would take time and not be visible
_LARGEST = 1e100  # beyond it the arithmetic of axes overflows
_SHORT_TITLE = 50  # characters that fit beside a legend of three names
_NAME = 26  # characters less for each further name
_BLUE, _ORANGE, _GREEN, _PURPLE = "#1f5fa8", "#c8641e", "#2e8b57", "#8b3fa8"
_INK, _GREY, _GRID = "#333333", "#8a8a8a", "#e3e3e3"
_BANDS = {
    "quartiles": ("episode_reward_q25", "episode_reward_q75"),
    "min .. max": ("episode_reward_min", "episode_reward_max"),  # older runs have only these
}
_LEFT, _RIGHT = ("loss", "critic_loss"), ("epsilon", "policy_loss")
"""What the second panel shows on its left and right axis: the first of each that the run has."""
_DRAWN = ("episode_reward_mean", *(name for band in _BANDS.values() for name in band),
          *_LEFT, *_RIGHT)  # fmt: skip

AXES = {
    "steps": ("timesteps_total", "environment steps"),
    "time": ("time_total_s", "wall time (s)"),
    "updates": ("updates_total", "updates"),
    "simulations": ("simulations_total", "simulations"),
    "core_hours": ("core_hours_total", "core-hours"),
}
"""What a curve can be drawn over: the column and its title."""

Curve = tuple[np.ndarray, np.ndarray]


def draw_curve(
    rows: Sequence[Mapping[str, object]],
    path: Path,
    title: str,
    target: float | None = None,
    evaluations: Sequence[Mapping[str, object]] = (),
    x: str = "steps",
) -> bool:
    """Draw mean reward over steps, or over another of ``AXES``, as a PNG; the middle half of the
    episodes is a band.

    Rows are those of ``progress.csv`` and ``evaluations.csv``; keys may be missing, values None, NaN or
    text. A second panel shows losses and epsilon if there are any. Returns False, and writes nothing,
    when no row has both a place on the axis and a finite reward.
    """
    steps = column(rows, AXES[x][0])
    columns = {name: column(rows, name) for name in _DRAWN}
    if not (np.isfinite(steps) & np.isfinite(columns["episode_reward_mean"])).any():
        return False
    steps, columns = thin(steps, columns, _POINTS)
    greedy = {"evaluation": column(evaluations, "reward_mean")}
    played = thin(evaluated_at(evaluations, rows, x), greedy, _POINTS)
    figure = _figure(
        steps, columns, title, target, (played[0], played[1]["evaluation"]), AXES[x][1]
    )
    _save(figure, path)
    return True


def column(rows: Sequence[Mapping[str, object]], key: str) -> np.ndarray:
    """The values of ``key`` as float64 [len(rows)], NaN where there is no number to draw."""
    values = np.full(len(rows), np.nan)
    for i, row in enumerate(rows):
        value = finite(row, key)
        if value is not None and abs(value) < _LARGEST:
            values[i] = value
    return values


def evaluated_at(
    evaluations: Sequence[Mapping[str, object]], rows: Sequence[Mapping[str, object]], x: str
) -> np.ndarray:
    """Where evaluations are on an axis; NaN where the rows do not tell. Evaluations themselves know
    their steps only."""
    steps = column(evaluations, "timesteps_total")
    if x == "steps":
        return steps
    known, places = column(rows, "timesteps_total"), column(rows, AXES[x][0])
    both = np.isfinite(known) & np.isfinite(places)
    return (
        np.interp(steps, known[both], places[both]) if both.any() else np.full(len(steps), np.nan)
    )


def thin(
    steps: np.ndarray, columns: Mapping[str, np.ndarray], points: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The curves in order of steps, with at most ``points`` points and without rows that lack steps.

    Neighbours are averaged; columns whose names end in ``_min`` or ``_max`` keep their extremes.
    """
    known = np.flatnonzero(np.isfinite(steps))
    order = known[np.argsort(steps[known], kind="stable")]
    steps, columns = steps[order], {name: values[order] for name, values in columns.items()}
    if len(steps) <= points:
        return steps, columns
    edges = np.linspace(0, len(steps), points, endpoint=False).astype(int)

    def reduce(name: str, values: np.ndarray) -> np.ndarray:
        if name.endswith("_min"):
            return np.fmin.reduceat(values, edges)
        if name.endswith("_max"):
            return np.fmax.reduceat(values, edges)
        counts = np.add.reduceat(np.isfinite(values).astype(float), edges)
        sums = np.add.reduceat(np.nan_to_num(values), edges)
        means = np.full(len(edges), np.nan)
        np.divide(sums, counts, out=means, where=counts > 0)
        return means

    thinned = {name: reduce(name, values) for name, values in columns.items()}
    return reduce("steps", steps), thinned


def _figure(
    steps: np.ndarray,
    columns: Mapping[str, np.ndarray],
    title: str,
    target: float | None,
    evaluations: Curve,
    x: str,
) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import EngFormatter

    two = _first(columns, _LEFT) or _first(columns, _RIGHT)
    layout = ConstrainedLayoutEngine(w_pad=0.2, h_pad=0.15)
    figure = Figure(figsize=(12, 7.5), dpi=100, facecolor="white", layout=layout)
    ratios = {"height_ratios": [3.2, 1]} if two else {}
    axes = figure.subplots(2 if two else 1, 1, sharex=True, squeeze=False, gridspec_kw=ratios)[:, 0]
    for panel in axes:
        _plain(panel)
    _draw_rewards(axes[0], steps, columns, target, evaluations)
    _draw_title(axes[0], title)
    if two:
        _draw_learning(axes[1], steps, columns)
    axes[-1].set_xlabel(x, fontsize=13, color=_INK)
    axes[-1].xaxis.set_major_formatter(EngFormatter(sep=""))  # 20k, 1.5M
    axes[-1].set_xlim(0, 1.01 * steps[-1] if steps[-1] > 0 else 1)
    return figure


def _draw_title(axes: Axes, title: str) -> None:
    """The title beside the legend, or above it if it is long."""
    names = len(axes.get_legend_handles_labels()[1])
    short = len(title) <= _SHORT_TITLE - _NAME * max(0, names - 3)
    text = title if len(title) <= 2 * _SHORT_TITLE else title[: 2 * _SHORT_TITLE - 1] + "…"
    axes.set_title(
        text,
        loc="left",
        fontsize=17 if short else 14,
        fontweight="bold",
        color=_INK,
        pad=12 if short else 34,
        parse_math=False,  # a name may have any character
    )


def _draw_rewards(
    axes: Axes,
    steps: np.ndarray,
    columns: Mapping[str, np.ndarray],
    target: float | None,
    evaluations: Curve,
) -> None:
    for label, ends in _BANDS.items():
        low, high = (columns[name] for name in ends)
        if np.isfinite(low + high).any():
            axes.fill_between(steps, low, high, color=_BLUE, alpha=0.15, linewidth=0, label=label)
            break
    _line(axes, steps, columns["episode_reward_mean"], _BLUE, label="mean", width=2.2)
    if np.isfinite(evaluations[1]).any():
        _line(axes, *evaluations, _PURPLE, label="evaluation", width=1.8)
    if target is not None and np.isfinite(target):
        axes.axhline(
            target, color=_GREEN, linewidth=1.6, linestyle=(0, (6, 4)), label=f"target {target:g}"
        )
    axes.set_ylabel("episode reward", fontsize=13, color=_INK)
    # Above the panel, to the right of the title, where it hides no data.
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: labels[i] != "mean")
    axes.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=4,
        fontsize=12,
        frameon=False,
        labelcolor=_INK,
        borderaxespad=0.2,
    )


def _draw_learning(axes: Axes, steps: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
    """The loss on the left and epsilon on the right, or the losses of critic and policy."""
    left, right = _first(columns, _LEFT), _first(columns, _RIGHT)
    sides = [(axes, left, _ORANGE)] if left else []
    if right:
        other = axes
        if left:
            other = axes.twinx()
            _plain(other)
            other.grid(False)
        sides.append((other, right, _GREY))
    for side, name, color in sides:
        values = columns[name]
        _line(side, steps, values, color, label=name, width=1.4)
        side.set_ylabel(name.replace("_", " "), fontsize=13, color=color)
        if name == "epsilon":
            side.set_ylim(bottom=0)
        elif np.nanmin(values) > 1 / _LARGEST:  # a log scale cannot show 0 or less
            _log_scale(side)


def _first(columns: Mapping[str, np.ndarray], names: Sequence[str]) -> str | None:
    """The first of these columns that has a value."""
    return next((name for name in names if np.isfinite(columns[name]).any()), None)


def _log_scale(axes: Axes) -> None:
    """A logarithmic y axis with about five plain numbers, whether it spans 1 decade or 20."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    narrow = high < 1000 * low  # LogLocator skips decades only if it puts nothing between them
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0) if narrow else (1.0,), numticks=5))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _line(
    axes: Axes, steps: np.ndarray, values: np.ndarray, color: str, *, label: str, width: float
) -> None:
    """A line through the rows that have a value; if these are few, each has a marker."""
    known = np.isfinite(values)
    marker = "o" if known.sum() <= 20 else ""
    axes.plot(
        steps[known], values[known], color=color, linewidth=width, label=label, marker=marker,
        markersize=5, solid_joinstyle="round",
    )  # fmt: skip


def _plain(axes: Axes) -> None:
    """Light grid, no frame, readable numbers."""
    axes.grid(True, color=_GRID, linewidth=0.9)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=12, length=0, colors=_INK)
    for side in axes.spines.values():
        side.set_visible(False)


def _save(figure: Figure, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as aside, aside.open("wb") as file:
        FigureCanvasAgg(figure).print_png(file)
