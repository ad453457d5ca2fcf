"""Whose run it is: what a stored run or study would import, start or connect to, and who wrote it."""

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
"""Parameters that start a program or connect to a machine, whatever their value."""
NUMBERS = ("workflow.sweep",)
"""Texts that are parsed as numbers only."""
_PLAIN = re.compile(r"[\w.+-]*", re.ASCII)
"""A word or a number: no path, address, module or command."""
_LONGEST = 300


def names_of_run(data: Mapping[str, Any]) -> list[str]:
    """What the ``config.json`` of a run names outside of EXARL and Gymnasium, as texts for the user."""
    learner = data["learner"]
    found = [_selected(key, learner.get(key)) for key in SELECTORS.values()]
    found += [f"residual '{text}'" for text in _texts(learner.get("residual"))]
    found += [f"log_to {service}" for service in _texts(learner.get("log_to"))]
    for family in FAMILIES[1:]:
        for key, value in data[family].items():
            if f"{family}.{key}" not in NUMBERS:
                found += [_parameter(key, text) for text in _texts(value)]
    return [name for name in found if name]


def names_of_study(data: Mapping[str, Any]) -> list[str]:
    """``names_of_run`` for ``study.json``, whose values are as the user typed them."""
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
    """ConfigError when a run names anything outside of EXARL and has no valid seal of this user.

    ``free`` are parameters of the learner that may change without a new seal.
    """
    _check(place, names_of_run(data), _facts_of_run(data, free), data.get("seal"))


def check_study(place: Path, data: Mapping[str, Any]) -> None:
    """``check_run`` for a study."""
    _check(place, names_of_study(data), _facts_of_study(data), data.get("seal"))


def sealed_run(place: Path, data: dict[str, Any], free: Sequence[str]) -> dict[str, Any]:
    """``data`` with the user's seal, if it names anything that needs one."""
    return _sealed(place, data, names_of_run(data), _facts_of_run(data, free))


def sealed_again(
    place: Path, stored: dict[str, Any], trusted: Mapping[str, Any], free: Sequence[str]
) -> dict[str, Any]:
    """``stored`` with the user's seal, if it still equals what this process ``trusted`` and runs."""
    same = all(
        (family == "learner" and key in free) or trusted[family].get(key) == value
        for family in FAMILIES
        for key, value in stored[family].items()
    )
    return sealed_run(place, stored, free) if same else stored


def sealed_study(place: Path, data: dict[str, Any], before: object) -> dict[str, Any]:
    """``sealed_run`` for a study; where no key can be stored, the seal of ``before`` stays."""
    found = _sealed(place, data, names_of_study(data), _facts_of_study(data))
    if "seal" not in found and isinstance(before, Mapping) and "seal" in before:
        return {**found, "seal": before["seal"]}
    return found


def _check(place: Path, names: Sequence[str], facts: object, seal: object) -> None:
    if not names or is_sealed(place, facts, seal):
        return
    shown = ", ".join(dict.fromkeys(names))
    raise ConfigError(
        f"{place} was not made here by you, or was changed since, and would use {shown};"
        " if you trust it, add --trust"
    )


def _sealed(
    place: Path, data: dict[str, Any], names: Sequence[str], facts: object
) -> dict[str, Any]:
    if not names:
        return data
    seal = make_seal(place, facts)
    if seal is None:
        log.warning("no key can be stored in ~/.exarl: continuing %s will need --trust", place)
        return data
    return {**data, "seal": seal}


def _facts_of_run(data: Mapping[str, Any], free: Sequence[str]) -> dict[str, object]:
    learner = {key: value for key, value in data["learner"].items() if key not in free}
    return {**{family: data[family] for family in FAMILIES}, "learner": learner}


def _facts_of_study(data: Mapping[str, object]) -> dict[str, object]:
    return {key: data[key] for key in ("folder", "config", "space", "train")}


def _selected(key: str, id: object) -> str:
    """An id with a module, in words; empty for an id that is installed or registered."""
    return f"{key} {_shown(id)}" if isinstance(id, str) and ":" in id else ""


def _parameter(key: str, text: str) -> str:
    plain = _PLAIN.fullmatch(text) and key not in REACHING
    return "" if plain else f"{key} {_shown(text)}"


def _shown(text: str) -> str:
    if len(text) <= _LONGEST:
        return f"'{text}'"
    return f"'{text[:_LONGEST]}' and {len(text) - _LONGEST} more characters"


def _typed(text: object) -> object:
    """A value as the user typed it: JSON, a list of plain words and numbers, or the text itself."""
    if not isinstance(text, str):
        return text
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    parts = [part.strip() for part in text.strip("[]()").split(",")]
    return parts if all(_PLAIN.fullmatch(part) for part in parts) else text


def _texts(value: object) -> Iterator[str]:
    """Every text inside a value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
