"""Times, fractions and lists of counts as users write them."""

from __future__ import annotations

import math
import re

from exarl.cli import words as line
from exarl.errors import ConfigError

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MOST = 1_000_000


def take_time(words: list[str], name: str, least: float = 0.0) -> float | None:
    """Remove ``--name TIME`` and return it in seconds: ``30``, ``20ms``, ``1.5h``."""
    if (text := line.take(words, name)) is None:
        return None
    found = re.fullmatch(r"([0-9.eE+-]+)\s*([a-z]*)", text)
    number = _number(found[1]) if found else math.nan
    unit = UNITS.get(found[2] or "s", math.nan) if found else math.nan
    seconds = number * unit
    if not least <= seconds < math.inf:
        raise ConfigError(
            f"--{name} is a time such as 20ms, 30s or 2h, not '{text}' (command line)"
        )
    return seconds


def take_number(
    words: list[str], name: str, least: float = 0.0, most: float = math.inf
) -> float | None:
    """Remove ``--name NUMBER`` and return it."""
    if (text := line.take(words, name)) is None:
        return None
    number = _number(text)
    if not least <= number <= most or math.isinf(number):
        limits = f"from {least:g} to {most:g}" if most < math.inf else f"of at least {least:g}"
        raise ConfigError(f"--{name} is a number {limits}, not '{text}' (command line)")
    return number


def take_counts(words: list[str], name: str) -> tuple[int, ...] | None:
    """Remove ``--name COUNTS`` and return them: ``64``, ``1,4,16``, or ``1-1000``: 1, 2, 5, 10 ..."""
    if (text := line.take(words, name)) is None:
        return None
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = [first, last] if dash else [first]
        if not all(end.isascii() and end.isdigit() and 0 < int(end) <= _MOST for end in ends):
            raise ConfigError(
                f"--{name} is a count, a list 1,4,16 or a range 1-1000, up to {_MOST:,},"
                f" not '{text}' (command line)"
            )
        found.update(series(int(first), int(last)) if dash else [int(first)])
    return tuple(sorted(found))


def series(first: int, last: int) -> list[int]:
    """1, 2, 5, 10, 20, 50 ... between two counts, with both."""
    steps = [factor * 10**power for power in range(7) for factor in (1, 2, 5)]
    return sorted({first, last, *(n for n in steps if first < n < last)})


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
