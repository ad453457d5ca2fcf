"""The progress of a run for the user: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import suppress
from typing import Protocol, TextIO

from exarl.display.notebook import NotebookProgress, in_notebook
from exarl.display.panel import panel, plain_line
from exarl.display.terminal import columns, launcher_terminal
from exarl.records.stops import Limits, Row

_REDRAW_SECONDS = 0.25
_WIDEST = 100  # columns of the live panel


class Progress(Protocol):
    """Shows the newest row of a run. No method raises when the stream is closed."""

    def update(self, row: Row) -> None:
        """Show ``row`` if the last one is old enough. The row is kept, not copied."""

    def note(self, text: str) -> None:
        """Show a line of text at once, beside the progress."""

    def busy(self, text: str) -> None:
        """Show what the run is doing while there are no rows; "" when that is over."""

    def close(self) -> None:
        """Show the last row and release the stream; later calls do nothing."""


def make_progress(
    title: str,
    limits: Limits,
    stream: TextIO,
    *,
    live: bool | None = None,
    interval: float = 10.0,
) -> Progress:
    """Progress on ``stream``: as a panel if ``live``, otherwise as lines.

    By default it is live on a terminal, also on the terminal of an MPI launcher that shows the stream;
    in a notebook it is a display of the notebook.

    ``limits`` has the stop rules' limits by parameter (``total_steps`` ...); None: not set. Lines are
    written at most every ``interval`` seconds. The live panel hides the cursor and redirects
    ``sys.stdout`` to above itself until ``close``.
    """
    device = None
    if live is None and in_notebook():
        return NotebookProgress(title, limits)
    if live is None:
        live = is_terminal(stream)
        if not live and _draws_panels(stream):
            device = launcher_terminal(stream)
            live = device is not None
    if live:
        return _LiveProgress(title, limits, stream, device)
    return _PlainProgress(title, limits, stream, interval)


class _PlainProgress:
    """Lines: the first row, one row per ``interval`` seconds, the last row, and every note."""

    def __init__(self, title: str, limits: Limits, stream: TextIO, interval: float) -> None:
        self._limits = dict(limits)
        self._stream: TextIO | None = stream
        self._interval = interval
        self._next = -math.inf
        self._waiting: Row | None = None  # the newest row, while it is not shown
        self._write(title)

    def update(self, row: Row) -> None:
        self._waiting = row
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._interval
            self._show_row(last=False)

    def note(self, text: str) -> None:
        self._write(text)

    def busy(self, text: str) -> None:
        self._write(text)

    def close(self) -> None:
        self._show_row(last=True)
        self._stream = None

    def _show_row(self, *, last: bool) -> None:
        if self._waiting is not None:
            self._write(plain_line(self._waiting, self._limits, last=last))
            self._waiting = None

    def _write(self, text: str) -> None:
        if self._stream is None or not text:
            return
        try:
            encoding = getattr(self._stream, "encoding", None) or "utf-8"
            self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # a broken pipe, a full disk, a closed file
            self._stream = None


class _LiveProgress:
    """A panel at the bottom of the terminal, redrawn by ``update`` itself; no thread.

    ``device`` is the terminal that shows the stream, if the stream itself is no terminal.
    """

    def __init__(
        self, title: str, limits: Limits, stream: TextIO, device: str | None = None
    ) -> None:
        from rich.console import Console
        from rich.live import Live

        class QuietConsole(Console):  # type: ignore[misc]  # rich is Any to mypy
            def on_broken_pipe(self) -> None:
                self.quiet = True  # rich would end the process

            def show_cursor(self, show: bool = True) -> bool:
                # A rank that is killed with its job could not show the cursor again.
                return device is None and bool(super().show_cursor(show))

        self._title = title
        self._device = device
        self._limits = dict(limits)
        self._row: Row = {}
        self._busy = ""
        self._next = -math.inf
        self._live: Live | None = Live(
            console=QuietConsole(file=stream, force_terminal=True, highlight=False),
            auto_refresh=False,
            # Only if they go to this terminal anyway; output piped into a file stays there.
            redirect_stdout=is_terminal(sys.stdout),
            redirect_stderr=is_terminal(sys.stderr),
        )
        self._draw()

    def update(self, row: Row) -> None:
        self._row = row
        if time.monotonic() >= self._next:
            self._draw()

    def note(self, text: str) -> None:
        if self._live is None:
            return
        try:
            self._live.console.print(text, soft_wrap=True, markup=False, emoji=False)
        except (OSError, ValueError):
            self._give_up()

    def busy(self, text: str) -> None:
        self._busy = text
        self._draw()

    def close(self) -> None:
        self._busy = ""
        self._draw(last=True)
        self._give_up()

    def _draw(self, *, last: bool = False) -> None:
        if self._live is None:
            return
        try:
            if self._device is not None and (found := columns(self._device)) is not None:
                self._live.console.width = found
            width = min(self._live.console.width, _WIDEST)
            drawn = panel(self._title, self._row, self._limits, width, self._busy, last=last)
            self._live.start()  # does nothing from the second time on
            self._live.update(drawn, refresh=not last)  # stopping draws once more
        except (OSError, ValueError):
            self._give_up()
        self._next = time.monotonic() + _REDRAW_SECONDS

    def _give_up(self) -> None:
        """Restore the cursor and ``sys.stdout``, and show nothing from now on."""
        live, self._live = self._live, None
        if live is not None:
            with suppress(OSError, ValueError):
                live.stop()


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a live panel can be drawn on ``stream``."""
    try:
        drawable = stream is not None and stream.isatty()
    except (AttributeError, OSError, ValueError):
        return False
    return drawable and _draws_panels(stream)


def _draws_panels(stream: TextIO | None) -> bool:
    """Whether the terminal can show the characters of a panel."""
    encoding = str(getattr(stream, "encoding", "") or "").lower()
    return encoding.startswith("utf") and os.environ.get("TERM") != "dumb"
