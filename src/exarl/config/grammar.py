"""How varied values are typed: one grammar for ``exarl sweep`` and for ``--sweep`` of workflow fused.

``a,b,c`` lists values, ``low:high`` is a range. A range may end in ``:log`` or ``:linear``, in ``:int``
and in one number: the step between its values in ``exarl sweep``, their count in ``--sweep``.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from exarl.errors import ConfigError

V = TypeVar("V")
_CONDITION = re.compile(r"\s*(?P<name>[^<>=]*[^<>=\s])\s*(?P<sign><=|>=|<|>)\s*(?P<limit>[^<>=]+)")


@dataclass(frozen=True)
class Span:
    """A range as it is typed; ``whole`` stands for ``:int``."""

    low: float
    high: float
    number: float | None = None
    log: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Condition:
    """A number that is to be below or above a limit."""

    name: str
    below: bool
    limit: float

    def holds(self, value: float) -> bool:
        return value <= self.limit if self.below else value >= self.limit


def read_condition(text: str, key: str) -> Condition:
    """The condition ``name<limit`` or ``name>limit`` of a parameter; ConfigError where it is none."""
    found = _CONDITION.fullmatch(text)
    limit = _number(found["limit"]) if found else None
    if found is None or limit is None:
        raise ConfigError(f"{key}: '{text}' is not NAME<NUMBER or NAME>NUMBER")
    return Condition(found["name"], found["sign"].startswith("<"), limit)


def read_policies(texts: Iterable[str]) -> dict[str, str]:
    """The patterns of agents' names by the name of their policy; ConfigError where one is none."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, pattern = (part.strip() for part in text.partition("="))
        if not re.fullmatch(r"[A-Za-z]\w*", name) or not pattern or name in found:
            raise ConfigError(f"policies: '{text}' is no NAME=AGENTS with a name of its own")
        found[name] = pattern
    return found


def read_values(text: str, name: str) -> Span | list[str]:
    """The range or the listed values in ``text``; ConfigError for a range with an unknown ending."""
    parts = text.split(":")
    low, high = (_number(part) for part in (*parts, "")[:2])
    if low is None or high is None:
        return split(text)
    given: dict[str, str] = {}
    for ending in parts[2:]:
        kind = {"log": "scale", "linear": "scale", "int": "int"}.get(ending)
        kind = kind or ("number" if _number(ending) is not None else None)
        if kind is None or kind in given:
            raise ConfigError(
                f"{name}: '{text}' ends in '{ending}', not in log, linear, int or a number"
            )
        given[kind] = ending
    number = _number(given["number"]) if "number" in given else None
    return Span(low, high, number, given.get("scale") == "log", "int" in given)


def read_grid(text: str) -> dict[str, list[float]]:
    """The values of each name in ``name=a,b,c;name=low:high:COUNT[:log]``.

    ConfigError for anything else.
    """
    return dict(_named_values(part.strip()) for part in text.split(";") if part)


def split(text: str) -> list[str]:
    """``a,b,[c,d]`` at the commas outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def spaced(low: float, high: float, count: int, log: bool) -> list[float]:
    """``count`` values from ``low`` to ``high`` at equal distances, with ``log`` at equal ratios."""
    values: list[float] = (np.geomspace if log else np.linspace)(low, high, count).tolist()
    return values


def combinations(columns: Mapping[str, Iterable[V]]) -> list[dict[str, V]]:
    """Every combination of the columns' values; the last column varies fastest."""
    return [dict(zip(columns, row, strict=True)) for row in itertools.product(*columns.values())]


def _named_values(text: str) -> tuple[str, list[float]]:
    name, _, typed = (part.strip() for part in text.partition("="))
    found = read_values(typed, f"sweep: {name}")
    with contextlib.suppress(ValueError):  # of float, or of a logarithm
        if isinstance(found, list):
            return name, [float(value) for value in found]
        if found.number is not None and found.number >= 1 and not (found.number % 1 or found.whole):
            return name, spaced(found.low, found.high, int(found.number), found.log)
    raise ConfigError(
        f"sweep: '{text}' is neither name=a,b,c nor name=low:high:COUNT[:log] nor @FILE.csv"
    )


def _number(text: str) -> float | None:
    with contextlib.suppress(ValueError):
        number = float(text)
        return number if math.isfinite(number) else None
    return None
