"""Parameters: name, type, default, range and meaning, and how a value is checked.

A component declares its parameters as a frozen dataclass whose fields are made with ``param``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from exarl.config.layers import Bare
from exarl.errors import ConfigError


@dataclass(frozen=True)
class Parameter:
    """One documented parameter of a component."""

    name: str
    type: Any
    default: Any
    help: str = ""
    ge: float | None = None
    le: float | None = None
    gt: float | None = None
    lt: float | None = None

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING

    def range(self) -> str:
        """The bounds as text, such as ">= 0, < 1"; empty when there are none."""
        bounds = [
            f"{sign} {bound:g}"
            for sign, bound in ((">=", self.ge), (">", self.gt), ("<=", self.le), ("<", self.lt))
            if bound is not None
        ]
        return ", ".join(bounds)


Schema = Mapping[str, Parameter]


def param(
    default: Any,
    help: str,
    *,
    ge: float | None = None,
    le: float | None = None,
    gt: float | None = None,
    lt: float | None = None,
) -> Any:
    """A documented dataclass field; the bounds hold for every number in the value."""
    return dataclasses.field(
        default=default, metadata={"help": help, "ge": ge, "le": le, "gt": gt, "lt": lt}
    )


def schema_of(component: type) -> Schema:
    """The parameters of a dataclass made with ``param``."""
    hints = typing.get_type_hints(component)
    return {
        f.name: Parameter(f.name, hints[f.name], f.default, **f.metadata)
        for f in dataclasses.fields(component)
    }


def schema_of_signature(
    function: Callable[..., object],
    defaults: Mapping[str, object] | None = None,
    leave_out: tuple[str, ...] = ("self",),
) -> tuple[Schema, bool]:
    """The parameters of a constructor, and whether it accepts other keywords as well.

    ``defaults`` (those that a registry entry sets) replace the signature's own.
    """
    defaults = defaults or {}
    try:
        hints = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
    except (NameError, TypeError, AttributeError):
        hints = {}  # without annotations that can be evaluated, types are not checked
    schema: dict[str, Parameter] = {}
    open_ended = False
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            open_ended = True
        elif name not in leave_out and parameter.kind is not parameter.VAR_POSITIONAL:
            default = defaults.get(name, parameter.default)
            missing = default is inspect.Parameter.empty
            default = dataclasses.MISSING if missing else default
            schema[name] = Parameter(name, _plain_type(hints.get(name), default), default)
    return schema, open_ended


def type_name(kind: object) -> str:
    """A type as a user would write it: ``int``, ``list[int] | null``, ``"a" | "b"``."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return " | ".join(json.dumps(choice) for choice in arguments)
    if origin in (types.UnionType, typing.Union):
        return " | ".join(type_name(argument) for argument in arguments)
    if origin in (list, tuple):
        inner = ", ".join(type_name(a) for a in arguments if a is not Ellipsis)
        return f"list[{inner}]"
    names = {type(None): "null", dict: "object", Any: "any"}
    return names.get(kind) or str(getattr(kind, "__name__", kind))


def check(parameter: Parameter, value: object, origin: str, *, text: bool = False) -> Any:
    """``value`` converted to the parameter's type; ConfigError with key and origin otherwise.

    ``text`` means that the value is text from a command line, in any usual spelling.
    """
    bare = text and isinstance(value, Bare)
    for candidate, strict in _readings(True if bare else value) if text else ((value, True),):
        try:
            converted = msgspec.convert(candidate, parameter.type, strict=strict)
        except (
            msgspec.ValidationError,
            UnicodeEncodeError,
        ):  # the latter: text that is not Unicode
            continue
        _check_numbers(parameter, converted, value, origin)
        return converted
    if bare:
        plain = isinstance(parameter.default, int | float | str) and parameter.default != ""
        example = parameter.default if plain else "VALUE"
        raise ConfigError(
            f"{parameter.name} needs a value ({origin}), as in --{parameter.name} {example}"
        )
    shown = value if isinstance(value, str) else json.dumps(value, default=str)
    raise ConfigError(
        f"{parameter.name} is {type_name(parameter.type)}, not {_short(shown)!r} ({origin})"
    )


def _readings(text: object) -> list[tuple[object, bool]]:
    """The possible meanings of a value from the command line, the most literal first."""
    if not isinstance(text, str):
        return [(text, True)]
    readings: list[tuple[object, bool]] = []
    with contextlib.suppress(ValueError, RecursionError):
        readings.append((json.loads(text), True))
    readings.append((text, True))
    lowered = text.strip().lower()
    readings += [({"none": None, "true": True, "false": False}[w], True)
                 for w in ("none", "true", "false") if w == lowered]  # fmt: skip
    readings.append((lowered, False))
    with contextlib.suppress(ValueError):
        readings.append((float(text), True))  # ".5" and "5." are no JSON
    inner = text.strip()
    if (inner[:1], inner[-1:]) in (("[", "]"), ("(", ")")):
        inner = inner[1:-1]
    if inner:
        readings.append(([part.strip() for part in inner.split(",")], False))
    return readings


def _check_numbers(parameter: Parameter, value: object, given: object, origin: str) -> None:
    numbers = value if isinstance(value, list | tuple) else (value,)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        countable = -(2**63) <= number < 2**63 if isinstance(number, int) else math.isfinite(number)
        if not (
            countable
            and (parameter.ge is None or number >= parameter.ge)
            and (parameter.gt is None or number > parameter.gt)
            and (parameter.le is None or number <= parameter.le)
            and (parameter.lt is None or number < parameter.lt)
        ):
            wanted = parameter.range() if countable else "a finite number of 64 bits"
            raise ConfigError(
                f"{parameter.name} must be {wanted}, not {_short(str(given))} ({origin})"
            )


def _plain_type(hint: object, default: object) -> object:
    """The type to check an environment's keyword against; Any where it is no plain data."""
    plain: object = hint
    if default is None or default is dataclasses.MISSING or hint is None:
        plain = type(default) if type(default) in (bool, str) else Any
        if type(default) in (int, float):
            plain = float | int  # a default of 1 does not say that 0.5 is wrong
    try:
        msgspec.json.schema(plain)
    except (TypeError, RuntimeError):
        return Any
    return plain


def _short(text: str, limit: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
