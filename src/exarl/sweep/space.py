"""The varied parameters: ranges and choices, as text, as points of the unit interval, as values."""

from __future__ import annotations

import contextlib
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from exarl.config import Parameter
from exarl.config.grammar import Span, combinations, read_values, spaced
from exarl.errors import ConfigError

Value = float | int | str | bool
Point = Mapping[str, Value]
"""A setting: the name of each varied parameter and its value."""


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; whole numbers only, or multiples of a step."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    whole: bool = False

    def count(self) -> int | None:
        """The number of values; None for a continuous range."""
        step = self.step or (1 if self.whole else None)
        return None if step is None else math.floor((self.high - self.low) / step + 1e-9) + 1

    def at(self, place: float) -> Value:
        """The value at a place in [0, 1); the values of a countable range have equal shares."""
        if self.log:
            low, high = math.log(self.low - self._half()), math.log(self.high + self._half())
            value = math.exp(low + place * (high - low))
            return self._whole(round(value)) if self.whole else self._within(value)
        count = self.count()
        if count is None:
            return self._within(self.low + place * (self.high - self.low))
        value = self.low + min(int(place * count), count - 1) * (self.step or 1)
        return self._whole(value) if self.whole else self._within(value)

    def place(self, value: Value) -> float:
        """The inverse of ``at``; for a countable range the middle of the value's share."""
        number = float(value)
        if self.log:
            low, high = math.log(self.low - self._half()), math.log(self.high + self._half())
            return (math.log(number) - low) / (high - low) if high > low else 0.5
        count = self.count()
        if count is not None:
            return (round((number - self.low) / (self.step or 1)) + 0.5) / count
        return (number - self.low) / (self.high - self.low) if self.high > self.low else 0.5

    def spread(self, points: int) -> list[Value]:
        """All values of a countable linear range, else ``points`` values at equal distances."""
        count = self.count()
        if count is not None and not self.log:
            return [self.at((i + 0.5) / count) for i in range(count)]
        found = spaced(self.low, self.high, points, self.log)
        values = [self._whole(round(v)) if self.whole else self._within(v) for v in found]
        return list(dict.fromkeys(values))

    def ends(self) -> list[Value]:
        return [self._whole(end) if self.whole else end for end in (self.low, self.high)]

    def _half(self) -> float:
        return 0.5 if self.whole else 0.0

    def _whole(self, value: float) -> int:
        return int(min(max(value, self.low), self.high))

    def _within(self, value: float) -> float:
        return float(min(max(value, self.low), self.high))


@dataclass(frozen=True)
class Choices:
    """Listed values, without an order."""

    values: tuple[Value, ...]

    def at(self, place: float) -> Value:
        return self.values[min(int(place * len(self.values)), len(self.values) - 1)]

    def spread(self, points: int) -> list[Value]:
        return list(self.values)

    def ends(self) -> list[Value]:
        return list(self.values)


Dimension = Range | Choices
Space = Mapping[str, Dimension]


def is_swept(text: str, parameter: Parameter) -> bool:
    """Whether a value typed for ``parameter`` is a range or a list of choices.

    A value with blanks or quotes never is. For a parameter that takes lists, ``64,64`` is one list;
    several lists are ``[64,64],[32]``.
    """
    kinds = _kinds(parameter.type)
    if any(c in text for c in " \t\"'"):
        return False
    parts = read_values(text, parameter.name)
    if isinstance(parts, Span):
        return bool(kinds & {int, float, Any})
    if len(parts) < 2 or not all(parts):
        return False
    if kinds & {list, tuple}:
        return all(part[0] in "[(" for part in parts)
    return True


def parse(text: str, parameter: Parameter) -> Dimension:
    """The range or the choices in ``text``; ConfigError when it is neither."""
    name = parameter.name
    kinds = _kinds(parameter.type)
    parts = read_values(text, name)
    if isinstance(parts, Span):
        whole = parts.whole or (int in kinds and float not in kinds)
        return _checked(Range(parts.low, parts.high, parts.log, parts.number, whole), name)
    if not all(parts):
        raise ConfigError(f"{name}: '{text}' is neither low:high[:log|:int|:STEP] nor a,b,c")
    values = tuple(dict.fromkeys(map(_literal, parts)))
    if len(values) < len(parts):
        raise ConfigError(f"{name}: '{text}' names a choice twice")
    return Choices(values)


def word(value: Value) -> str:
    """A value as typed on a command line; floats with all digits."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else repr(value)


def words(point: Point) -> list[str]:
    """``--key=value`` for each parameter; in this form a value may begin with a dash."""
    return [f"--{key}={word(value)}" for key, value in point.items()]


def random_point(space: Space, sweep_seed: int, number: int) -> dict[str, Value]:
    """Setting ``number`` of a random search; it depends on the seed and this number alone."""
    places = np.random.default_rng([sweep_seed, number]).random(len(space))
    return {key: space[key].at(float(place)) for key, place in zip(space, places, strict=True)}


def grid(space: Space, points: int) -> list[dict[str, Value]]:
    """Every combination, with ``points`` values of a continuous range; the last one varies fastest."""
    return combinations({key: dimension.spread(points) for key, dimension in space.items()})


def _checked(found: Range, name: str) -> Range:
    shown = f"{found.low:g}:{found.high:g}"
    if not found.low < found.high:
        raise ConfigError(f"{name}: {shown} is no range: the lower end comes first")
    if found.log and found.low <= 0:
        raise ConfigError(f"{name}: {shown} cannot be logarithmic: it must begin above 0")
    if found.log and found.step is not None:
        raise ConfigError(f"{name}: a range has log or a step, not both")
    if found.step is not None and not 0 < found.step <= found.high - found.low:
        raise ConfigError(f"{name}: step {found.step:g} does not fit into {shown}")
    whole = [found.low, found.high, found.step or 1]
    if found.whole and any(number != int(number) for number in whole):
        raise ConfigError(f"{name}: {shown} is a range of whole numbers and needs whole ends")
    return found


def _literal(text: str) -> Value:
    """A choice as JSON reads it if that gives a number or a boolean; otherwise the text itself."""
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text)
        if isinstance(value, bool | int | float):
            return value
    return text


def _kinds(kind: object) -> set[object]:
    """The plain types that a value of ``kind`` may have."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return set().union(*map(_kinds, arguments))
    return {origin if origin is not None else kind}
