"""Whose run it is: what a stored run or study would import, start or reach, and who has written it."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from exarl.config import FAMILIES
from exarl.config.resolve import SELECTORS
from exarl.errors import ConfigError
from exarl.records.seal import is_sealed, make_seal

log = logging.getLogger(__name__)

REACHING = ("command", "address")
"""Parameters that start a program or connect to a machine, whatever they are set to."""
NUMBERS = ("workflow.sweep",)
"""Text that is only read as numbers."""
_PLAIN = re.compile(r"[\w.+-]*", re.ASCII)
"""A word or a number: no path, no address, no module with a name in it, no command with words."""
_LONGEST = 300


def names_of_run(data: Mapping[str, Any]) -> list[str]:
    """What a run's ``config.json`` names outside of EXARL and Gymnasium, each in words."""
    learner = data["learner"]
    found = [_selected(key, learner.get(key)) for key in SELECTORS.values()]
    found += [f"log_to {service}" for service in _texts(learner.get("log_to"))]
    for family in FAMILIES[1:]:
        for key, value in data[family].items():
            if f"{family}.{key}" not in NUMBERS:
                found += [_parameter(key, text) for text in _texts(value)]
    return [name for name in found if name]


def names_of_study(data: Mapping[str, Any]) -> list[str]:
    """The same for ``study.json``, whose values are as typed."""
    found = [f"the configuration {data['config']}"] if data["config"] else []
    project = Path(str(data["folder"]), "exarl", "config")
    if project.exists():
        found.append(f"the configuration {project}")
    words = [(key, _typed(text)) for key, text in data["train"].items()]
    words += [(key, part.get("choices", [])) for key, part in data["space"].items()]
    for key, value in words:
        own = key.rpartition(".")[2]
        if own in SELECTORS.values():
            found += [_selected(own, id) for id in _texts(value)]
        elif own == "log_to":
            found += [f"log_to {service}" for service in _texts(value)]
        elif f"workflow.{own}" not in NUMBERS:
            found += [_parameter(own, text) for text in _texts(value)]
    return [name for name in found if name]


def check_run(place: Path, data: Mapping[str, Any], free: Sequence[str]) -> None:
    """ConfigError when a run names something outside and this user has not written it here.

    ``free`` are parameters of the learner that anybody may change.
    """
    _check(place, names_of_run(data), _facts_of_run(data, free), data.get("seal"))


def check_study(place: Path, data: Mapping[str, Any]) -> None:
    """The same for a study."""
    _check(place, names_of_study(data), _facts_of_study(data), data.get("seal"))


def sealed_run(place: Path, data: dict[str, Any], free: Sequence[str]) -> dict[str, Any]:
    """``data`` with the user's seal, if what it names asks for one."""
    return _sealed(place, data, names_of_run(data), _facts_of_run(data, free))


def sealed_again(
    place: Path, stored: dict[str, Any], trusted: Mapping[str, Any], free: Sequence[str]
) -> dict[str, Any]:
    """``stored`` with the user's seal, if it still names what this process has ``trusted`` and runs."""
    same = all(
        (family == "learner" and key in free) or trusted[family].get(key) == value
        for family in FAMILIES
        for key, value in stored[family].items()
    )
    return sealed_run(place, stored, free) if same else stored


def sealed_study(place: Path, data: dict[str, Any], before: Any) -> dict[str, Any]:
    """The same for a study; where no key can be kept, the seal of ``before`` stays."""
    found = _sealed(place, data, names_of_study(data), _facts_of_study(data))
    if "seal" not in found and isinstance(before, Mapping) and "seal" in before:
        return {**found, "seal": before["seal"]}
    return found


def _check(place: Path, names: Sequence[str], facts: Any, seal: Any) -> None:
    if not names or is_sealed(place, facts, seal):
        return
    shown = ", ".join(dict.fromkeys(names))
    raise ConfigError(
        f"{place} was not made here by you, or was changed since, and would use {shown};"
        " if you trust it, add --trust"
    )


def _sealed(place: Path, data: dict[str, Any], names: Sequence[str], facts: Any) -> dict[str, Any]:
    if not names:
        return data
    seal = make_seal(place, facts)
    if seal is None:
        log.warning("no key can be kept in ~/.exarl: to continue %s will need --trust", place)
        return data
    return {**data, "seal": seal}


def _facts_of_run(data: Mapping[str, Any], free: Sequence[str]) -> dict[str, Any]:
    learner = {key: value for key, value in data["learner"].items() if key not in free}
    return {**{family: data[family] for family in FAMILIES}, "learner": learner}


def _facts_of_study(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: data[key] for key in ("folder", "config", "space", "train")}


def _selected(key: str, id: Any) -> str:
    """An id that brings a module; any other means what this Python has installed or registered."""
    return f"{key} {_shown(id)}" if isinstance(id, str) and ":" in id else ""


def _parameter(key: str, text: str) -> str:
    plain = _PLAIN.fullmatch(text) and key not in REACHING
    return "" if plain else f"{key} {_shown(text)}"


def _shown(text: str) -> str:
    if len(text) <= _LONGEST:
        return f"'{text}'"
    return f"'{text[:_LONGEST]}' and {len(text) - _LONGEST} more characters"


def _typed(text: Any) -> Any:
    """A typed value as data: JSON, a list of plain words and numbers, or the text as it is."""
    if not isinstance(text, str):
        return text
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    parts = [part.strip() for part in text.strip("[]()").split(",")]
    return parts if all(_PLAIN.fullmatch(part) for part in parts) else text


def _texts(value: Any) -> Iterator[str]:
    """Every text within a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
