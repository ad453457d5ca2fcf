"""A row of metrics as a line of text, and as a panel for a terminal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from exarl.records.metrics import finite
from exarl.records.stops import REWARD, Limits, Row, eta_seconds, fraction_done, limit_of

if TYPE_CHECKING:
    from rich.panel import Panel

_TWO_COLUMNS = 64  # width inside the panel from which on fields are in pairs
_LABEL = 13  # columns of a field's name
_SHORTEST_BAR = 12
_DIM, _PLAIN, _GOOD = "bright_black", "default", "green"
_COLORS = ("cyan", "magenta", "green", "yellow", "blue", "red")

Line = list[tuple[str, str]]
"""Pieces of text, each with its style."""


def plain_line(row: Row, limits: Limits, *, last: bool = False) -> str:
    """One line about ``row``, with the values that it has; the ``last`` line has no ETA."""
    parts = [
        ("{} steps", _formatted(row, "timesteps_total", _count)),
        ("{} episodes", _formatted(row, "episodes_total", _count)),
        ("reward {}", _reward_with_range(row)),
        ("{} steps/s", _formatted(row, "steps_per_s", _rate)),
        ("{} updates/s", _formatted(row, "updates_per_s", _rate)),
        *((f"{name} {{}}", value) for name, value in _losses(row)),
        ("lag {}", _formatted(row, "policy_lag_mean", _small, zero=False)),
        ("{} env restarts", _formatted(row, "env_restarts", _count, zero=False)),
    ]
    if last:
        parts.append(("elapsed {}", _formatted(row, "time_total_s", _clock)))
    elif (eta := eta_seconds(row, limits)) is not None:
        parts.append(("ETA {}", _clock(eta)))
    return "  |  ".join(form.format(value) for form, value in parts if value is not None)


def panel(
    title: str, row: Row, limits: Limits, width: int, busy: str = "", *, last: bool = False
) -> Panel:
    """The whole display, ``width`` columns wide; ``busy`` says what the run does without rows."""
    from rich.panel import Panel
    from rich.text import Text

    heading = Text(title, style="bold", no_wrap=True, overflow="ellipsis")
    lines = _lines(row, limits, width - 4, last=last) if row else []
    if busy or not row:
        lines.append([(busy or "starting ...", _DIM)])
    pieces = [piece for line in lines for piece in (("\n", ""), *line)][1:]
    body = Text.assemble(*pieces, no_wrap=True, overflow="ellipsis")
    return Panel(body, title=heading, title_align="left", width=width, border_style=_DIM)


def _lines(row: Row, limits: Limits, width: int, *, last: bool) -> list[Line]:
    fraction, eta = fraction_done(row, limits), None if last else eta_seconds(row, limits)
    return [
        *([] if fraction is None else [_bar(fraction, eta, width)]),
        _reward_line(row, limits),
        *_field_lines(_fields(row, limits), width),
        *_split_lines(row, width),
    ]


def _bar(fraction: float, eta: float | None, width: int) -> Line:
    """The bar, the percentage that is done, and the time that is left."""
    words = f" {math.floor(100 * fraction):3d} %" + ("" if eta is None else f"   ETA {_clock(eta)}")
    # A fixed width for the words, so that the length of the bar does not change all the time.
    words = f"{words:<22}" if width >= _TWO_COLUMNS else words
    cells = max(_SHORTEST_BAR, width - len(words))
    full = math.floor(fraction * cells)
    return [("━" * full, f"bold {_GOOD}"), ("─" * (cells - full), _DIM), (words, _PLAIN)]


def _reward_line(row: Row, limits: Limits) -> Line:
    reward, target = finite(row, REWARD), limit_of(REWARD, limits)
    reached = reward is not None and target is not None and reward >= target
    style = _GOOD if reached else _PLAIN
    line = [(f"{'reward':<{_LABEL}}", _DIM), (_reward_with_range(row) or "-", f"bold {style}")]
    return line if target is None else [*line, (f"  target {target:g}", style)]


def _fields(row: Row, limits: Limits) -> list[tuple[str, str]]:
    """Names and values in reading order; some only when they are of interest."""

    def show(column: str, form: Callable[[float], str]) -> str:
        limit = limit_of(column, limits)
        return (_formatted(row, column, form) or "-") + (f" / {form(limit)}" if limit else "")

    fields = [
        ("steps", show("timesteps_total", _count)),
        ("steps/s", show("steps_per_s", _rate)),
        ("episodes", show("episodes_total", _count)),
        ("episode len", show("episode_len_mean", _reward)),
        ("updates", show("updates_total", _count)),
        ("updates/s", show("updates_per_s", _rate)),
        ("elapsed", show("time_total_s", _clock)),
        *(_losses(row) or [("loss", "-")]),
    ]
    if _formatted(row, "epsilon", _small):
        fields.append(("epsilon", show("epsilon", _small)))
    if finite(row, "policy_lag_mean") or finite(row, "policy_lag_max"):
        most = f" (max {show('policy_lag_max', _small)})"
        fields.append(("policy lag", show("policy_lag_mean", _small) + most))
    if finite(row, "env_restarts"):
        fields.append(("env restarts", show("env_restarts", _count)))
    return fields


def _losses(row: Row) -> list[tuple[str, str]]:
    """The losses in a row: one, or those of critic and policy."""
    names = ("loss",) if finite(row, "loss") is not None else ("critic_loss", "policy_loss")
    found = [(name.replace("_", " "), _formatted(row, name, _small)) for name in names]
    return [(name, value) for name, value in found if value is not None]


def _field_lines(fields: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """The fields, in pairs if the panel is wide enough."""
    per_line = 2 if width >= _TWO_COLUMNS else 1
    room = width // per_line - _LABEL
    lines: list[Line] = []
    for i, (name, value) in enumerate(fields):
        if i % per_line == 0:
            lines.append([])
        lines[-1] += [(f"{name:<{_LABEL}}", _DIM), (f"{value:<{room - 1}} ", _PLAIN)]
    return lines


def _split_lines(row: Row, width: int) -> list[Line]:
    """Where the time went: a coloured bar, and its legend beside or below it."""
    shares = {key: finite(row, key) or 0.0 for key in row if key.startswith("time/")}
    shares = {key.removeprefix("time/"): share for key, share in shares.items() if share > 0}
    if not shares:
        return []
    words = [f"  {name} {100 * share:.0f} %" for name, share in shares.items()]
    room = width - _LABEL
    beside = room - sum(map(len, words))
    cells = _cells(list(shares.values()), beside if beside >= _SHORTEST_BAR else room)
    colors = [_COLORS[i % len(_COLORS)] for i in range(len(words))]
    bar = [("█" * count, color) for count, color in zip(cells, colors, strict=True)]
    lines: list[Line] = [[(f"{'time':<{_LABEL}}", _DIM), *bar]]
    left = room - sum(cells) if beside >= _SHORTEST_BAR else 0
    for word, color in zip(words, colors, strict=True):
        if len(word) > left:  # on a new line; every word begins with two spaces
            lines.append([(" " * (_LABEL - 2), _PLAIN)])
            left = room + 2
        lines[-1].append((word, color))
        left -= len(word)
    return lines


def _cells(shares: Sequence[float], width: int) -> list[int]:
    """``width`` cells divided by ``shares``; if these add up to less than 1, the rest is empty."""
    total = max(1.0, sum(shares))
    edges = [round(width * used / total) for used in itertools.accumulate(shares, initial=0.0)]
    return [end - start for start, end in itertools.pairwise(edges)]


def _formatted(
    row: Row, key: str, form: Callable[[float], str], *, zero: bool = True
) -> str | None:
    value = finite(row, key)
    return None if value is None or (value == 0 and not zero) else form(value)


def _reward_with_range(row: Row) -> str | None:
    mean, low, high = (
        _formatted(row, f"episode_reward_{x}", _reward) for x in ("mean", "min", "max")
    )
    if mean is None or low is None or high is None:
        return mean
    return f"{mean} ({low} .. {high})"


_count = "{:,.0f}".format
_small = "{:.3g}".format


def _reward(value: float) -> str:
    return f"{value:,.1f}" if value == 0 or 1 <= abs(value) < 1e7 else f"{value:.3g}"


def _rate(value: float) -> str:
    """A rate per second, readable from thousands (CartPole) down to a few per hour (a simulation)."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _clock(seconds: float) -> str:
    """``0:08``, ``12:34``, ``1:02:03`` or ``2 d 03:04``."""
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days:,} d {hour:02d}:{minute:02d}"
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"
