"""The progress of a study: a live table on a terminal, one line per setting elsewhere."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from exarl.sweep.space import Point, Value
from exarl.sweep.study import SettingRow

if TYPE_CHECKING:
    from rich.console import Group

FINAL = ("complete", "pruned", "failed")
_SHOWN = 8


def best_of(rows: Sequence[SettingRow]) -> SettingRow | None:
    """The complete setting with the largest value, the first of equals; None without one."""
    done = [row for row in rows if row.state == "complete" and row.value is not None]
    return max(done, key=lambda row: (row.value, -row.setting), default=None)


def short(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def setting_text(point: Point) -> str:
    return "  ".join(f"{key}={short(value)}" for key, value in point.items())


def counts_text(rows: Sequence[SettingRow], trials: int) -> str:
    """``12 of 40 done, 2 running, 1 pruned, 1 failed``."""
    count = Counter(row.state for row in rows)
    done = sum(count[state] for state in FINAL)
    others = [f"{count[s]} {s}" for s in ("running", "pruned", "failed") if count[s]]
    return ", ".join([f"{done} of {trials} done", *others])


def result_text(row: SettingRow) -> str:
    """The result of a setting, in a few words."""
    if row.state == "failed":
        return f"failed: {row.error}"
    value = "" if row.value is None else short(row.value)
    if len(row.seeds) > 1:
        return f"{value} (seeds {' '.join(short(seed) for seed in row.seeds.values())})"
    return f"pruned at {value}" if row.state == "pruned" else value


class Lines:
    """A line for each setting that has ended."""

    def __init__(self, stream: TextIO, trials: int) -> None:
        self._stream, self._trials = stream, trials
        self._seen: set[int] | None = None

    def update(self, rows: list[SettingRow]) -> None:
        ended = [row for row in rows if row.state in FINAL]
        if self._seen is None:  # the settings that had ended before the study was resumed
            self._seen = {row.setting for row in ended}
            self.note(counts_text(rows, self._trials))
        for row in ended:
            if row.setting not in self._seen:
                self._seen.add(row.setting)
                best = best_of(rows)
                leads = "  best so far" if best is not None and best.setting == row.setting else ""
                count = f"[{len(self._seen)}/{self._trials}]"
                text = f"setting {row.setting}  {setting_text(row.point)}"
                self.note(f"{count} {text}  ->  {result_text(row)}{leads}")

    def note(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text + "\n")
            self._stream.flush()

    def close(self) -> None:
        pass


class Live:
    """A table at the bottom of the terminal."""

    def __init__(self, stream: TextIO, title: str, trials: int) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._title, self._trials = title, trials
        self._live = RichLive(
            console=Console(file=stream, force_terminal=True, highlight=False), auto_refresh=False
        )
        self._live.start()

    def update(self, rows: list[SettingRow]) -> None:
        with suppress(OSError, ValueError):
            self._live.update(draw(self._title, rows, self._trials), refresh=True)

    def note(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._live.console.print(text, soft_wrap=True, markup=False, emoji=False)

    def close(self) -> None:
        with suppress(OSError, ValueError):
            self._live.stop()


def draw(title: str, rows: Sequence[SettingRow], trials: int) -> Group:
    """The table for rich: counts, the best setting, and the latest settings."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("setting", justify="right")
    table.add_column("state")
    table.add_column("value", justify="right")
    table.add_column("parameters")
    colours = {"failed": "red", "complete": "green", "pruned": "yellow"}
    running = [row for row in rows if row.state == "running"]
    ended = [row for row in rows if row.state in FINAL]
    for row in sorted([*ended[-max(0, _SHOWN - len(running)) :], *running][-_SHOWN:]):
        shown = "" if row.value is None else short(row.value)
        about = Text(row.error or setting_text(row.point), no_wrap=True, overflow="ellipsis")
        state = Text(row.state, style=colours.get(row.state, ""))
        table.add_row(str(row.setting), state, shown, about)
    best = best_of(rows)
    lead = (
        "no value yet"
        if best is None
        else f"{short(best.value or 0.0)}  {setting_text(best.point)}"
    )
    heading = Text(f"{title}: {counts_text(rows, trials)}", style="bold")
    return Group(heading, Text(f"best: {lead}", no_wrap=True, overflow="ellipsis"), table)


def make_display(stream: TextIO, title: str, trials: int) -> Lines | Live:
    """A live table if ``stream`` is a terminal that can show one, else lines."""
    with suppress(AttributeError, OSError, ValueError):
        encoding = str(stream.encoding or "").lower()
        if stream.isatty() and encoding.startswith("utf") and os.environ.get("TERM") != "dumb":
            return Live(stream, title, trials)
    return Lines(stream, trials)
