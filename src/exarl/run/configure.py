"""Configurations: of a new run, and of one that is stored and continued."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from exarl import registry
from exarl.agents.base import NoParameters
from exarl.config import (
    AUTO,
    FAMILIES,
    STOPS,
    Configuration,
    Declared,
    Lookup,
    Source,
    load,
    parse_flags,
    resolve,
    schema_of,
    stored_source,
)
from exarl.envs import describe_env
from exarl.errors import ConfigError
from exarl.records.directory import RunDirectory, absolute, expand, read_json, write_json, writing
from exarl.records.state import FAILED, ended_as
from exarl.records.stops import met_by_summary
from exarl.records.trust import check_run, sealed_again

WHERE = ("run_dir", "output_dir")
LOGGED = ("log_info", "log_level", "log_to", "log_online", "log_project")
KEPT = ("checkpoint_interval", "keep_checkpoints", "on_divergence", "record_limit")
OBSERVED = (*LOGGED, *KEPT, "curve_x", "profile", "watchdog")
GUARDED = ("env_failure", "env_isolation", "step_timeout", "reset_timeout", "max_env_failures")
ELSEWHERE = ("workflow.listen", "workflow.actor_timeout")
"""Where a run is reached: it may go on at another address. This is not stored."""
MAY_CHANGE = (*STOPS, "stop_when", *OBSERVED, *GUARDED, *WHERE, "learner_procs")
UNSEALED = tuple(key for key in MAY_CHANGE if key not in ("log_to", "log_online", "log_project"))
"""Keys of a run's ``config.json`` that may change without breaking its seal: they run no code."""


def lookup(family: str, id: str) -> Declared:
    """What a registered component declares; ConfigError if there is none."""
    if family == "env":
        return Declared(*describe_env(id))
    registries = {
        "agent": registry.agents,
        "workflow": registry.workflows,
        "model": registry.networks,
    }
    component = registries[family].load(id)
    schema = schema_of(getattr(component, "Config", NoParameters))
    return Declared(schema, defaults=getattr(component, "defaults", {}))


def configure(
    config: str | os.PathLike[str] | None = None,
    flags: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
) -> Configuration:
    """Resolve all layers, Python arguments and command-line flags; later ones win."""
    given = parse_flags(flags)
    chosen = given.pop(AUTO, None)
    explicit = [
        Source(overrides or {}, "argument"),
        Source(given, "command line", text=True),
    ]
    weak = [] if chosen is None else [_chosen(chosen)]
    found = load(lookup, explicit, config=expand(config) if config else None, weak=weak)
    return _with_absolute_paths(found)


def _with_absolute_paths(configuration: Configuration) -> Configuration:
    """The configuration with the paths of its prior data absolute, so that a run finds them again."""
    if not configuration.learner.prior_data:
        return configuration
    found = tuple(str(absolute(path)) for path in configuration.learner.prior_data)
    learner = dataclasses.replace(configuration.learner, prior_data=found)
    own = {**configuration.values["learner"], "prior_data": found}
    values = {**configuration.values, "learner": own}
    return dataclasses.replace(configuration, learner=learner, values=values)


def _chosen(text: str) -> Source:
    """The settings that ``exarl train --auto`` has chosen, as it passes them on."""
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise ConfigError(
            "--auto measures in one process (command line): with mpiexec, take the line that 'exarl"
            " check-env' proposes, or let --procs N start the ranks"
        )
    return Source(values, AUTO)


def configure_again(
    run: RunDirectory,
    flags: Sequence[str] = (),
    trust: bool = False,
    *,
    changes: Mapping[str, Any] | None = None,
    lookup: Lookup = lookup,
) -> Configuration:
    """The configuration of a stored run, changed by Python arguments and command-line flags.

    Unless ``trust``, it raises ConfigError before anything is imported if the run names code outside
    of EXARL and was not made by this user.
    """
    data = read_json(run.config)
    stored = stored_source(data, str(run.config))
    if not trust:
        check_run(run.path, data, UNSEALED)
    given = [
        Source(changes or {}, "argument"),
        Source(parse_flags(flags), "command line", text=True),
    ]
    for source in given:
        for key in source.values:
            if key.removeprefix("learner.") in WHERE:
                raise ConfigError(
                    f"{key} cannot be given ({source.origin}): the run stays in {run.path}"
                )
    return resolve(lookup, [stored, *given])


def stored_id(run: RunDirectory, key: str) -> str:
    """The id of a stored run's ``agent`` or ``env``; ConfigError if its configuration is damaged."""
    try:
        return str(read_json(run.config)["learner"][key])
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{run.config} is damaged: it names no {key}") from error


def check_same_run(run: RunDirectory, configuration: Configuration) -> None:
    """Raise ConfigError if a stored run has another configuration; only ``MAY_CHANGE`` may differ.

    A parameter that the stored run does not know, because it is newer, has its default.
    """
    stored = read_json(run.config)
    asked = json.loads(json.dumps(configuration.to_json()))
    if (stored["learner"].get("total_steps") == 0) != configuration.learner.offline:
        raise ConfigError(f"total_steps of {run.path} cannot change from 0, or to it")
    for family in FAMILIES:
        for key, value in asked[family].items():
            added = key not in stored[family]
            if added and configuration.origins.get(f"{family}.{key}") == "default":
                continue
            if f"{family}.{key}" in ELSEWHERE:
                continue
            if stored[family].get(key) != value and key not in MAY_CHANGE:
                raise ConfigError(
                    f"{run.path} holds a run with {key}={stored[family].get(key)!r}, not {value!r};"
                    " choose another run_dir"
                )


def finished_by(run: RunDirectory, configuration: Configuration) -> str | None:
    """The stop criterion that a stored run has met already; None when there is more to do."""
    try:
        summary = read_json(run.summary)
        if ended_as(summary["reason"]) == FAILED:
            return None  # perhaps just before its end
        return met_by_summary(configuration.learner, summary)
    except (ConfigError, KeyError, TypeError):
        return None  # it has not ended, or its summary cannot be read


def remember_changes(run: RunDirectory, configuration: Configuration) -> None:
    """Store in ``config.json`` what a continued run changes, for the next resume, and seal it as this
    user's run."""
    stored, now = read_json(run.config), json.loads(json.dumps(configuration.to_json()))
    changed = {
        key: now["learner"][key]
        for key in MAY_CHANGE
        if key not in WHERE and stored["learner"].get(key) != now["learner"][key]
    }
    if changed:
        stored["learner"] |= changed
        origins = {f"learner.{key}": configuration.origins[f"learner.{key}"] for key in changed}
        known = stored.get("origins")
        stored["origins"] = known | origins if isinstance(known, dict) else origins
    ours = sealed_again(run.path, stored, now, UNSEALED)
    if changed or ours != stored:
        with writing(run.path):
            write_json(run.config, ours)


def script_flags() -> list[str]:
    """The command line of the script being run; empty in an interactive session."""
    interactive = hasattr(sys, "ps1") or "ipykernel" in sys.modules
    return [] if interactive else sys.argv[1:]
