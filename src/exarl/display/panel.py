"""What a row of metrics says, as a line of text and as a panel for a terminal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from exarl.records.metrics import finite

if TYPE_CHECKING:
    from rich.panel import Panel

_TWO_COLUMNS = 64  # inner columns from which fields stand in pairs
_LABEL = 13  # columns of a field's name
_SHORTEST_BAR = 12
_DIM, _PLAIN, _GOOD = "bright_black", "default", "green"
_COLORS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_COUNTED = {
    "total_steps": "timesteps_total",
    "n_episodes": "episodes_total",
    "wall_time": "time_total_s",
}
"""Stop criterion -> what of a row counts towards it."""

Row = Mapping[str, Any]
Stops = Mapping[str, float | None]
Line = list[tuple[str, str]]
"""Pieces of text, each with its style."""


def fraction_done(row: Row, stops: Stops) -> float | None:
    """How far the run is towards the criterion that is furthest along, in [0, 1].

    None where no limit of steps, episodes or time is set, or the row does not tell. The target
    reward does not count: nobody knows how far away it is.
    """
    return max(_fractions(row, stops).values(), default=None)


def eta_seconds(row: Row, stops: Stops) -> float | None:
    """Seconds until the first criterion is met, or None where nothing is known of it.

    Steps are taken to come at the row's ``steps_per_s``, which knows nothing of compiling, and episodes
    to be as long as so far.
    """
    elapsed = finite(row, "time_total_s")
    rate, steps = finite(row, "steps_per_s"), finite(row, "timesteps_total")
    times = []
    for name, fraction in _fractions(row, stops).items():
        limit = float(stops[name] or 0)
        if fraction >= 1:
            times.append(0.0)
        elif name == "wall_time":
            times.append(limit * (1 - fraction))
        elif name == "total_steps" and rate is not None and rate > 0:
            times.append(limit * (1 - fraction) / rate)
        elif name == "n_episodes" and rate is not None and rate > 0 and fraction > 0 and steps:
            times.append(steps * (1 - fraction) / fraction / rate)
        elif elapsed is not None and elapsed > 0 and fraction > 0:
            times.append(elapsed * (1 - fraction) / fraction)
    return min(filter(math.isfinite, times), default=None)


def plain_line(row: Row, stops: Stops, *, last: bool = False) -> str:
    """One line about ``row``, without what it does not hold; the ``last`` has no ETA."""
    parts = [
        ("{} steps", _shown(row, "timesteps_total", _count)),
        ("{} episodes", _shown(row, "episodes_total", _count)),
        ("reward {}", _reward_with_range(row)),
        ("{} steps/s", _shown(row, "steps_per_s", _rate)),
        ("{} updates/s", _shown(row, "updates_per_s", _rate)),
        *((f"{name} {{}}", value) for name, value in _losses(row)),
        ("lag {}", _shown(row, "policy_lag_mean", _small, zero=False)),
        ("{} env restarts", _shown(row, "env_restarts", _count, zero=False)),
    ]
    if last:
        parts.append(("elapsed {}", _shown(row, "time_total_s", _clock)))
    elif (eta := eta_seconds(row, stops)) is not None:
        parts.append(("ETA {}", _clock(eta)))
    return "  |  ".join(form.format(value) for form, value in parts if value is not None)


def panel(
    title: str, row: Row, stops: Stops, width: int, busy: str = "", *, last: bool = False
) -> Panel:
    """The whole display, ``width`` columns wide; ``busy`` is what goes on while no row can come."""
    from rich.panel import Panel
    from rich.text import Text

    heading = Text(title, style="bold", no_wrap=True, overflow="ellipsis")
    lines = _lines(row, stops, width - 4, last=last) if row else []
    if busy or not row:
        lines.append([(busy or "starting ...", _DIM)])
    pieces = [piece for line in lines for piece in (("\n", ""), *line)][1:]
    body = Text.assemble(*pieces, no_wrap=True, overflow="ellipsis")
    return Panel(body, title=heading, title_align="left", width=width, border_style=_DIM)


def _lines(row: Row, stops: Stops, width: int, *, last: bool) -> list[Line]:
    fraction, eta = fraction_done(row, stops), None if last else eta_seconds(row, stops)
    return [
        *([] if fraction is None else [_bar(fraction, eta, width)]),
        _reward_line(row, stops),
        *_field_lines(_fields(row, stops), width),
        *_split_lines(row, width),
    ]


def _bar(fraction: float, eta: float | None, width: int) -> Line:
    """The bar, how many per cent it is and how long it will take."""
    words = f" {math.floor(100 * fraction):3d} %" + ("" if eta is None else f"   ETA {_clock(eta)}")
    # A fixed place for the words, so that the bar does not change its length all the time.
    words = f"{words:<22}" if width >= _TWO_COLUMNS else words
    cells = max(_SHORTEST_BAR, width - len(words))
    full = math.floor(fraction * cells)
    return [("━" * full, f"bold {_GOOD}"), ("─" * (cells - full), _DIM), (words, _PLAIN)]


def _reward_line(row: Row, stops: Stops) -> Line:
    reward, target = finite(row, "episode_reward_mean"), finite(stops, "target_reward")
    reached = reward is not None and target is not None and reward >= target
    style = _GOOD if reached else _PLAIN
    line = [(f"{'reward':<{_LABEL}}", _DIM), (_reward_with_range(row) or "-", f"bold {style}")]
    return line if target is None else [*line, (f"  target {target:g}", style)]


def _fields(row: Row, stops: Stops) -> list[tuple[str, str]]:
    """Names and values in reading order; those that matter only sometimes come only then."""

    def show(key: str, form: Callable[[float], str], stop: str | None = None) -> str:
        limit = _limit(stops, stop) if stop else None
        return (_shown(row, key, form) or "-") + (f" / {form(limit)}" if limit else "")

    fields = [
        ("steps", show("timesteps_total", _count, "total_steps")),
        ("steps/s", show("steps_per_s", _rate)),
        ("episodes", show("episodes_total", _count, "n_episodes")),
        ("episode len", show("episode_len_mean", _reward)),
        ("updates", show("updates_total", _count)),
        ("updates/s", show("updates_per_s", _rate)),
        ("elapsed", show("time_total_s", _clock, "wall_time")),
        *(_losses(row) or [("loss", "-")]),
    ]
    if _shown(row, "epsilon", _small):
        fields.append(("epsilon", show("epsilon", _small)))
    if finite(row, "policy_lag_mean") or finite(row, "policy_lag_max"):
        most = f" (max {show('policy_lag_max', _small)})"
        fields.append(("policy lag", show("policy_lag_mean", _small) + most))
    if finite(row, "env_restarts"):
        fields.append(("env restarts", show("env_restarts", _count)))
    return fields


def _losses(row: Row) -> list[tuple[str, str]]:
    """The losses that a row tells: one, or those of critic and policy."""
    names = ("loss",) if finite(row, "loss") is not None else ("critic_loss", "policy_loss")
    told = [(name.replace("_", " "), _shown(row, name, _small)) for name in names]
    return [(name, value) for name, value in told if value is not None]


def _field_lines(fields: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """Fields in pairs, where there is room for pairs."""
    per_line = 2 if width >= _TWO_COLUMNS else 1
    room = width // per_line - _LABEL
    lines: list[Line] = []
    for i, (name, value) in enumerate(fields):
        if i % per_line == 0:
            lines.append([])
        lines[-1] += [(f"{name:<{_LABEL}}", _DIM), (f"{value:<{room - 1}} ", _PLAIN)]
    return lines


def _split_lines(row: Row, width: int) -> list[Line]:
    """Where the time went: a bar of colours, and their meaning beside or below it."""
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
        if len(word) > left:  # a new line; every word begins with two spaces
            lines.append([(" " * (_LABEL - 2), _PLAIN)])
            left = room + 2
        lines[-1].append((word, color))
        left -= len(word)
    return lines


def _cells(shares: Sequence[float], width: int) -> list[int]:
    """``width`` cells divided by ``shares``; what they lack to 1 stays empty."""
    total = max(1.0, sum(shares))
    edges = [round(width * used / total) for used in itertools.accumulate(shares, initial=0.0)]
    return [end - start for start, end in itertools.pairwise(edges)]


def _fractions(row: Row, stops: Stops) -> dict[str, float]:
    """How much of each limit is used up, in [0, 1], where both are known."""
    found = {}
    for name, key in _COUNTED.items():
        done, limit = finite(row, key), _limit(stops, name)
        if done is not None and limit is not None:
            found[name] = min(1.0, max(0.0, done / limit))
    return found


def _limit(stops: Stops, name: str) -> float | None:
    limit = finite(stops, name)
    return limit if limit is not None and limit > 0 else None


def _shown(row: Row, key: str, form: Callable[[float], str], *, zero: bool = True) -> str | None:
    value = finite(row, key)
    return None if value is None or (value == 0 and not zero) else form(value)


def _reward_with_range(row: Row) -> str | None:
    mean, low, high = (_shown(row, f"episode_reward_{x}", _reward) for x in ("mean", "min", "max"))
    if mean is None or low is None or high is None:
        return mean
    return f"{mean} ({low} .. {high})"


_count = "{:,.0f}".format
_small = "{:.3g}".format


def _reward(value: float) -> str:
    return f"{value:,.1f}" if value == 0 or 1 <= abs(value) < 1e7 else f"{value:.3g}"


def _rate(value: float) -> str:
    """Thousands a second for CartPole, a few an hour for a simulation: both are readable."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _clock(seconds: float) -> str:
    """``0:08``, ``12:34``, ``1:02:03`` or ``2 d 03:04``."""
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days:,} d {hour:02d}:{minute:02d}"
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"
