"""Groups of runs that differ only in their seed, their differences and their labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from exarl.config.resolve import SELECTORS
from exarl.errors import ConfigError, did_you_mean
from exarl.report.read import Run

CHOSEN = tuple(f"learner.{key}" for key in SELECTORS.values())
"""The keys of agent, environment, workflow and network."""
NO_MATTER = tuple(
    f"learner.{key}"
    for key in ("seed", "run_dir", "output_dir", "log_level", "log_to", "log_online", "log_project")
)
"""Keys that may differ within a group: locations, logging and the seed."""
RANKS = "layout.world"
PACKAGED = "config/defaults"
_LABELLED = 4  # most keys in a label


@dataclass(frozen=True)
class Group:
    """Runs of one experiment. ``values`` are those that all its runs share."""

    label: str
    runs: tuple[Run, ...]
    values: Mapping[str, object]
    origins: Mapping[str, str]


@dataclass(frozen=True)
class Difference:
    """A key, its value in each group (None: the group has no such key) and its origin there."""

    key: str
    values: tuple[object, ...]
    origins: tuple[str, ...]

    @property
    def chosen(self) -> bool:
        """Whether a user set it in any group."""
        return any(origin not in ("", "default", "packaged") for origin in self.origins)

    @property
    def everywhere(self) -> bool:
        return "" not in self.origins


def make_groups(runs: Sequence[Run], key: str | None = None) -> list[Group]:
    """Runs grouped by their configuration or, with ``key``, by the value of that parameter alone."""
    full = None if key is None else _full_key(runs, key)
    sorted_runs: dict[str, list[Run]] = {}
    for run in runs:
        values = _values(run)
        if full is None:
            same: object = {k: v for k, v in values.items() if k not in NO_MATTER} or str(run.path)
        else:
            same = values.get(full)
        sorted_runs.setdefault(json.dumps(same, sort_keys=True), []).append(run)
    groups = [_group(members) for members in sorted_runs.values()]
    if full is None:
        labels = _labels(groups)
    else:
        labels = [f"{key} {_word(_values(group.runs[0]).get(full))}" for group in groups]
    return [
        Group(label, group.runs, group.values, group.origins)
        for label, group in zip(labels, groups, strict=True)
    ]


def differences(groups: Sequence[Group]) -> list[Difference]:
    """The keys whose values differ between groups, in the order of their configuration."""
    keys = dict.fromkeys(key for group in groups for key in group.values)
    found = [
        Difference(
            key,
            tuple(group.values.get(key) for group in groups),
            tuple(origin_of(group, key) for group in groups),
        )
        for key in keys
        if key not in NO_MATTER
    ]
    return [d for d in found if len({json.dumps(v) for v in d.values}) > 1]


def _group(runs: Sequence[Run]) -> Group:
    first, *others = [_values(run) for run in runs]
    common = {k: v for k, v in first.items() if all(k in o and o[k] == v for o in others)}
    return Group("", tuple(runs), common, runs[0].origins)


def _values(run: Run) -> dict[str, object]:
    layout = run.manifest.get("layout")
    world = layout.get("world") if isinstance(layout, Mapping) else None
    return {**run.values, RANKS: world} if world is not None else dict(run.values)


def _full_key(runs: Sequence[Run], key: str) -> str:
    """``learning_rate`` -> ``agent.learning_rate``; ConfigError when no run has it."""
    known = list(dict.fromkeys(name for run in runs for name in _values(run)))
    wanted = key.replace("-", "_")
    found = [name for name in known if wanted in (name, name.partition(".")[2])]
    if not found:
        hint = did_you_mean(wanted, [name.partition(".")[2] for name in known])
        raise ConfigError(f"no run has a parameter '{key}'{hint} (--group-by)")
    return found[0]


def _labels(groups: Sequence[Group]) -> list[str]:
    """Short labels that distinguish the groups: by components, then set parameters, then all keys."""
    different = differences(groups)
    selected = [d for d in different if d.key in (*CHOSEN, RANKS)]
    chosen = [d for d in different if d.chosen and d.everywhere and d not in selected]
    rest = [d for d in different if d not in selected and d not in chosen]
    labels = [_name(group) for group in groups]
    for used in (selected, selected + chosen, selected + chosen + rest):
        if used:
            labels = [" · ".join(_says(d, i) for d in used[:_LABELLED]) for i in range(len(groups))]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{label} #{i + 1}" for i, label in enumerate(labels)]


def _says(difference: Difference, i: int) -> str:
    key, value = difference.key, difference.values[i]
    if key == RANKS:
        return f"{value} rank{'s' * (value != 1)}"
    return _word(value) if key in CHOSEN else f"{key.partition('.')[2]} {_word(value)}"


def _name(group: Group) -> str:
    known = [str(group.values[key]) for key in CHOSEN[:3] if group.values.get(key) is not None]
    return " · ".join(known) or group.runs[0].name


def origin_of(group: Group, key: str) -> str:
    """The origin of a value in short; empty without a value."""
    if key not in group.values:
        return ""
    origin = str(group.origins.get(key, "launch" if key == RANKS else "default"))
    if PACKAGED in origin:
        return "packaged"
    return PurePath(origin).name if "/" in origin else origin


def _word(value: object) -> str:
    """A value in a label: that of a sweep may have sixteen digits."""
    if isinstance(value, float):
        value = float(f"{value:.4g}")
    return value if isinstance(value, str) else json.dumps(value)
