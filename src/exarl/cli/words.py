"""A command's own options, taken out of its words; the remaining words are parameters."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import overload

from exarl.errors import ConfigError, did_you_mean


def wants_help(words: list[str]) -> bool:
    return any(word in ("-h", "--help") for word in words)


def take(words: list[str], name: str) -> str | None:
    """Remove ``--name VALUE`` (or ``--name=VALUE``) and return the last value, or None."""
    return values[-1] if (values := take_all(words, name)) else None


def take_all(words: list[str], name: str) -> list[str]:
    """Like ``take``, with all the values that were given, in their order."""
    values = []
    position = 0
    while position < len(words):
        word, equals, inline = words[position].partition("=")
        if word != f"--{name}" and word != f"--{name.replace('_', '-')}":
            position += 1
            continue
        del words[position]
        if not equals and position < len(words) and not words[position].startswith("--"):
            inline = words.pop(position)
        if not inline:
            raise ConfigError(f"--{name} needs a value (command line)")
        values.append(inline)
    return values


def take_flag(words: list[str], name: str) -> bool:
    """Remove a bare ``--name`` and return whether it was there."""
    spellings = (f"--{name}", f"--{name.replace('_', '-')}")
    found = [word for word in words if word in spellings]
    words[:] = [word for word in words if word not in spellings]
    return bool(found)


@overload
def take_count(words: list[str], name: str, default: int, least: int = 1) -> int: ...
@overload
def take_count(words: list[str], name: str, default: None = None, least: int = 1) -> int | None: ...
def take_count(
    words: list[str], name: str, default: int | None = None, least: int = 1
) -> int | None:
    """Like ``take``, for a whole number of at least ``least``."""
    text = take(words, name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) >= least):
        shown = text if len(text) < 40 else f"{text[:37]}..."
        raise ConfigError(
            f"{name} is a whole number of at least {least}, not '{shown}' (command line)"
        )
    return int(text)


def take_seconds(words: list[str], name: str, default: float) -> float:
    """Like ``take``, for a time above 0."""
    text = take(words, name)
    try:
        seconds = default if text is None else float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ConfigError(f"{name} is a number above 0, not '{text}' (command line)")
    return seconds


def take_path(words: list[str], what: str) -> str:
    """Remove and return the positional argument; ConfigError if there is none."""
    if not words or not words[0] or words[0].startswith("--"):
        raise ConfigError(f"which {what}? it follows the command, before any option")
    return words.pop(0)


def check_choice(value: str, options: Collection[str], problem: str) -> None:
    """ConfigError unless ``value`` is an option: ``problem``, and the nearest option or all of them."""
    if value not in options:
        raise ConfigError(problem + (did_you_mean(value, options) or f" ({', '.join(options)})"))


def nothing_left(words: list[str]) -> None:
    """ConfigError if any word has not been taken."""
    if words:
        raise ConfigError(f"unexpected '{words[0]}' on the command line")
