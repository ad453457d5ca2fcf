"""``exarl check-env``."""

from __future__ import annotations

import sys
from typing import Any

from exarl.config import Parameter, Source, parse_flags
from exarl.config.schema import check
from exarl.envs import describe_env
from exarl.errors import ConfigError, did_you_mean
from exarl.launch import words as line

HELP = """\
usage: exarl check-env ID [--key value ...]

Makes the environment (the keys go to its constructor), runs Gymnasium's checker and EXARL's own
checks on it (seeds, numbers, snapshots, a process of its own, files, speed), and says what to change.
Exit code 1 when a check fails.
"""
MARKS = {True: "ok  ", False: "FAIL", None: "note"}


def check_env(words: list[str]) -> int:
    if line.wants_help(words):
        sys.stdout.write(HELP)
        return 0
    from exarl.envs.check import check_environment

    id = line.take_path(words, "environment id")
    findings = check_environment(id, env_parameters(id, words))
    for found in findings:
        detail = f": {found.detail}" if found.detail else ""
        sys.stdout.write(f"{MARKS[found.passed]}  {found.check}{detail}\n")
        if found.hint:
            sys.stdout.write(f"      -> {found.hint}\n")
    failed = sum(found.passed is False for found in findings)
    sys.stdout.write(f"{id}: {'fit to train' if not failed else f'{failed} checks failed'}\n")
    return 1 if failed else 0


def env_parameters(id: str, words: list[str]) -> dict[str, object]:
    """The flags as checked keywords of the environment's constructor."""
    schema, open_ended = describe_env(id)
    source = Source(parse_flags(words), "command line", text=True)
    values = {}
    for key, value in source.values.items():
        name = key.removeprefix("env.")
        if name not in schema:
            if open_ended:
                anything = Parameter(name, Any, None)
                values[name] = check(anything, value, source.origin, text=True)
                continue
            raise ConfigError(
                f"unknown parameter '{key}' ({source.origin}){did_you_mean(name, schema)}"
            )
        values[name] = check(schema[name], value, source.origin, text=True)
    return values
