"""``exarl list`` and ``exarl describe``."""

from __future__ import annotations

import inspect
import json
import sys
import textwrap
from typing import Any

from exarl import registry
from exarl.config import Parameter, Schema, schema_of, type_name
from exarl.errors import ConfigError, did_you_mean
from exarl.launch import words as line

LIST_HELP = "usage: exarl list [agents|envs|workflows|models]\n\nThe ids that can be used.\n"
DESCRIBE_HELP = """\
usage: exarl describe ID

What an agent, environment, workflow or network is, and its parameters with type, default, range and
meaning.
"""
KINDS = {
    "agents": registry.agents,
    "workflows": registry.workflows,
    "models": registry.networks,
}


def list_ids(words: list[str]) -> int:
    if line.wants_help(words):
        sys.stdout.write(LIST_HELP)
        return 0
    kinds = words or [*KINDS, "envs"]
    for kind in kinds:
        if kind not in (*KINDS, "envs"):
            hint = did_you_mean(kind, [*KINDS, "envs"]) or " (agents, envs, workflows, models)"
            raise ConfigError(f"cannot list '{kind}'{hint}")
    for kind in kinds:
        sys.stdout.write("\n".join([f"{kind}:", *(f"  {id}" for id in _ids(kind)), ""]))
    return 0


def describe(words: list[str]) -> int:
    if line.wants_help(words):
        sys.stdout.write(DESCRIBE_HELP)
        return 0
    id = line.take_path(words, "id")
    line.nothing_left(words)
    for kind, known in KINDS.items():
        if id in known or known.planned(id):
            component = known.load(id)
            schema = schema_of(component.Config) if hasattr(component, "Config") else {}
            sys.stdout.write(_page(id, kind, inspect.getdoc(component), schema))
            return 0
    sys.stdout.write(_describe_env(id))
    return 0


def parameter_table(schema: Schema) -> str:
    """Every parameter in two lines: name, type, default and range; then its meaning."""
    return "".join(_entry(parameter) for parameter in schema.values())


def _entry(parameter: Parameter) -> str:
    default = "required" if parameter.required else f"default {_shown(parameter.default)}"
    facts = [type_name(parameter.type), default, parameter.range()]
    head = f"  --{parameter.name}  ({'; '.join(fact for fact in facts if fact)})\n"
    body = textwrap.fill(parameter.help, 92, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return head + (f"{body}\n" if parameter.help else "")


def _shown(value: Any) -> str:
    try:
        return json.dumps(value)
    except TypeError:
        return repr(value)


def _page(id: str, kind: str, doc: str | None, schema: Schema, more: str = "") -> str:
    table = parameter_table(schema) or "  none\n"
    return f"{id} ({kind.removesuffix('s')})\n\n{doc or ''}\n{more}\nparameters:\n{table}"


def _describe_env(id: str) -> str:
    from exarl.envs.registration import creator_of, describe_env, find_spec

    try:
        spec = find_spec(id)
    except ConfigError as error:
        known = [i for registered in KINDS.values() for i in registered.ids()]
        hint = did_you_mean(id, known)
        raise ConfigError(f"nothing is called '{id}'{hint}" if hint else str(error)) from error
    schema, open_ended = describe_env(id)
    doc = inspect.getdoc(creator_of(spec)) or ""
    limit = spec.max_episode_steps
    more = f"\nepisodes are cut after {limit} steps\n" if limit else ""
    if open_ended:
        more += "other keywords are accepted as --env.NAME and handed to the constructor\n"
    return _page(id, "envs", doc.split("\n\n")[0], schema, more)


def _ids(kind: str) -> list[str]:
    if kind != "envs":
        return KINDS[kind].ids()
    from exarl.envs import env_ids

    return env_ids()
