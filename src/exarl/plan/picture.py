"""Strong and weak scaling as a picture, with the assumptions under it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exarl.plan.forecast import HOUR, acting_rate
from exarl.plan.proposals import Proposal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREY = "#2563a8", "#d9622b", "#7a7f87"


@dataclass(frozen=True)
class Scaling:
    """Predictions for more and more ranks: with one learner, and with as many as pay."""

    one: Sequence[Proposal]
    best: Sequence[Proposal]
    steps: float


def draw(scaling: Scaling, title: str, assumptions: str, path: Path) -> None:
    """Write the picture as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.4), dpi=110)
    figure.subplots_adjust(left=0.07, right=0.985, top=0.88, bottom=0.23, wspace=0.2)
    strong, weak = figure.subplots(1, 2)
    _strong(strong, scaling)
    _weak(weak, scaling)
    figure.suptitle(title, x=0.07, ha="left", fontsize=12)
    figure.text(0.07, 0.015, textwrap.fill(assumptions, 165), fontsize=8, color=GREY, va="bottom")
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png")


def _strong(axes: Axes, scaling: Scaling) -> None:
    """The time of the same run on more ranks."""
    for points, colour, name in _lines(scaling):
        ranks = [p.run.ranks for p in points]
        hours = [p.seconds / HOUR for p in points]
        axes.loglog(ranks, hours, "o-", ms=3.5, color=colour, label=name)
    ranks = [p.run.ranks for p in scaling.best]
    rates = [acting_rate(p.costs, p.run) for p in scaling.best]
    ideal = [scaling.steps / rate / HOUR for rate in rates]
    axes.loglog(ranks, ideal, "--", color=GREY, lw=1, label="actors that never wait, no start")
    axes.set(
        title=f"strong: the hours of {scaling.steps:,.0f} steps", xlabel="ranks", ylabel="hours"
    )
    axes.grid(which="major", alpha=0.25)
    axes.legend(frameon=False, fontsize=9)


def _weak(axes: Axes, scaling: Scaling) -> None:
    """The speed of an actor among more and more others."""
    for points, colour, name in _lines(scaling):
        ranks = [p.run.ranks for p in points]
        parts = [p.forecast.steps_per_s / acting_rate(p.costs, p.run) for p in points]
        axes.semilogx(ranks, parts, "o-", ms=3.5, color=colour, label=name)
    last = 0.0
    for p in scaling.best:
        if p.run.learners > 1 and p.run.learners != last:
            at = (p.run.ranks, p.forecast.steps_per_s / acting_rate(p.costs, p.run))
            axes.annotate(
                f"{p.run.learners}", at, (4, 6), textcoords="offset points", ha="center", fontsize=8
            )
            last = p.run.learners
    axes.axhline(1, ls="--", lw=1, color=GREY)
    axes.set(
        title="weak: the speed of an actor (1: it never waits)",
        xlabel="ranks",
        ylim=(0, 1.12),
    )
    axes.grid(which="major", alpha=0.25)
    axes.legend(frameon=False, fontsize=9, loc="lower left")


def _lines(scaling: Scaling) -> list[tuple[Sequence[Proposal], str, str]]:
    return [
        (scaling.one, ORANGE, "one learner"),
        (scaling.best, BLUE, "as many learners as pay (how many)"),
    ]
