"""The progress of a run in a Jupyter notebook: the panel of the terminal, above a curve that grows."""

from __future__ import annotations

import io
import math
import sys
import time
from typing import Any

import numpy as np

from exarl.display.panel import panel
from exarl.records.metrics import finite
from exarl.records.stops import REWARD, Limits, Row

_REDRAW_SECONDS = 0.5
_COLUMNS = 90
_MOST_POINTS = 600
_NOTES = 10  # the newest lines of text that stay visible
_STYLE = "background: none; line-height: 1.2; font-family: 'DejaVu Sans Mono', Menlo, monospace"
_TEXT = (1, 2, 3)  # stands for the colour of the text around the display
_GREY = (140, 140, 140)
_COLORS = [
    _TEXT, (200, 70, 60), (60, 150, 80), (180, 130, 20),  # black, red, green, yellow
    (60, 125, 200), (170, 80, 170), (30, 150, 160), _GREY,  # blue, magenta, cyan, white
]  # fmt: skip
"""Colours that can be read on light and on dark pages."""
_WIDTH, _HEIGHT, _MARGIN = 640, 150, 60


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which can show HTML."""
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class NotebookProgress:
    """A display below the cell, replaced as the run goes on."""

    def __init__(self, title: str, limits: Limits) -> None:
        self._title, self._limits = title, dict(limits)
        self._row: Row = {}
        self._busy = ""
        self._notes: list[str] = []
        self._points: list[tuple[float, float]] = []  # evenly spaced, without the newest
        self._newest: list[tuple[float, float]] = []
        self._seen, self._every = 0, 1
        self._handle: Any = None
        self._next = -math.inf
        self._closed = False
        self._draw()

    def update(self, row: Row) -> None:
        self._row = row
        step, reward = finite(row, "timesteps_total"), finite(row, REWARD)
        if step is not None and reward is not None:
            self._add(step, reward)
        if time.monotonic() >= self._next:
            self._draw()

    def note(self, text: str) -> None:
        self._notes = [*self._notes, text][-_NOTES:]
        self._draw()

    def busy(self, text: str) -> None:
        self._busy = text
        self._draw()

    def close(self) -> None:
        self._busy = ""
        self._draw(last=True)
        self._closed = True

    def _add(self, step: float, reward: float) -> None:
        """Keep every row, then every second, every fourth ..., so that a long run stays small."""
        self._newest = [(step, reward)]
        if self._seen % self._every == 0:
            self._points += self._newest
        self._seen += 1
        if len(self._points) >= _MOST_POINTS:
            del self._points[1::2]
            self._every *= 2

    def _draw(self, *, last: bool = False) -> None:
        if self._closed:
            return
        data = {"text/html": self._html(last=last), "text/plain": self._title}
        if self._handle is None:
            from IPython.display import display

            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)
        self._next = time.monotonic() + _REDRAW_SECONDS

    def _curve(self) -> list[tuple[float, float]]:
        return self._points + [point for point in self._newest if point not in self._points[-1:]]

    def _html(self, *, last: bool) -> str:
        from rich.console import Console
        from rich.terminal_theme import TerminalTheme

        console = Console(
            file=io.StringIO(), record=True, width=_COLUMNS, highlight=False, force_jupyter=False
        )
        drawn = panel(self._title, self._row, self._limits, _COLUMNS, self._busy, last=last)
        console.print(drawn)
        for note in self._notes:
            console.print(note, soft_wrap=True, markup=False, emoji=False)
        theme = TerminalTheme(_TEXT, _TEXT, _COLORS, [_GREY, *_COLORS[1:]])
        form = f'<pre style="{_STYLE}">{{code}}</pre>'
        text = console.export_html(theme=theme, inline_styles=True, code_format=form)
        return text.replace("#{:02x}{:02x}{:02x}".format(*_TEXT), "currentColor") + curve_svg(
            np.array(self._curve())
        )


def curve_svg(points: np.ndarray) -> str:
    """Reward over steps, [N, 2], as SVG in the colour of the text around it; "" below two points."""
    if len(points) < 2:
        return ""
    low, high = points.min(0), points.max(0)
    span = np.where(high > low, high - low, 1.0)
    x, y = ((points - low) / span).T
    x = _MARGIN + x * (_WIDTH - _MARGIN - 5)
    y = 5 + (1 - y) * (_HEIGHT - 30)
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    bottom = _HEIGHT - 25
    labels = (
        (_MARGIN - 6, 12, "end", f"{high[1]:.4g}"),
        (_MARGIN - 6, bottom, "end", f"{low[1]:.4g}"),
        (_MARGIN, bottom + 18, "start", f"{low[0]:,.0f}"),
        (_WIDTH - 5, bottom + 18, "end", f"{high[0]:,.0f} steps"),
        ((_WIDTH + _MARGIN) / 2, bottom + 18, "middle", "episode reward"),
    )
    texts = "".join(
        f'<text x="{a}" y="{b}" text-anchor="{anchor}" fill="currentColor">{text}</text>'
        for a, b, anchor, text in labels
    )
    frame = f"M{_MARGIN},5V{bottom}H{_WIDTH - 5}"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" font-size="11">'
        f'<path d="{frame}" fill="none" stroke="currentColor" opacity="0.4"/>'
        f'<polyline points="{line}" fill="none" stroke="#3b82c4" stroke-width="1.8"/>{texts}</svg>'
    )
