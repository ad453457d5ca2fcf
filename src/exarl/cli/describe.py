"""``exarl list`` and ``exarl describe``."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from exarl import registry
from exarl.cli import words as line
from exarl.cli.tables import parameter_table, shown
from exarl.config import Schema, read_source, schema_of, tuned_files
from exarl.errors import ConfigError, did_you_mean

LIST_HELP = "usage: exarl list [agents|envs|workflows|models]\n\nThe ids that can be used.\n"
DESCRIBE_HELP = """\
usage: exarl describe ID
       exarl describe AGENT ENV

What an agent, environment, workflow or network is, and its parameters with type, default, range and
meaning. With an agent and an environment: the settings that are packaged for the two together, or
that a tuned/AGENT/ENV.json of yours has.
"""
KINDS = {
    "agents": registry.agents,
    "workflows": registry.workflows,
    "models": registry.networks,
}


@dataclass(frozen=True)
class Component:
    """A registered component: its kind, its id, what it says of itself, its parameters."""

    kind: str
    id: str
    doc: str
    schema: Schema
    more: str = ""

    def page(self) -> str:
        table = parameter_table(self.schema) or "  none\n"
        return f"{self.id} ({self.kind})\n\n{self.doc}\n{self.more}\nparameters:\n{table}"


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
        sys.stdout.write("\n".join([f"{kind}:", *(f"  {id}" for id in ids(kind)), ""]))
    return 0


def describe(words: list[str]) -> int:
    if line.wants_help(words):
        sys.stdout.write(DESCRIBE_HELP)
        return 0
    id = line.take_path(words, "id")
    if words and not words[0].startswith("--"):
        env = words.pop(0)
        line.nothing_left(words)
        sys.stdout.write(settings_of(id, env))
        return 0
    line.nothing_left(words)
    sys.stdout.write(component(id).page() + settings_with(id))
    return 0


def component(id: str, kind: str | None = None) -> Component:
    """What is registered as ``id``, of this kind or of any; ConfigError when nothing is."""
    for known, registered in KINDS.items():
        if kind in (None, known) and (id in registered or registered.planned(id) or kind):
            found = registered.load(id)
            schema = schema_of(found.Config) if hasattr(found, "Config") else {}
            doc = inspect.getdoc(found) or ""
            return Component(known.removesuffix("s"), id, doc, schema)
    return _environment(id)


def catalogue() -> Iterator[Component]:
    """Every component of EXARL's and of its plug-ins that can be imported here."""
    from exarl.envs.registration import BUILTIN, plugins

    for kind in KINDS:
        for id in ids(kind):
            with contextlib.suppress(ConfigError):
                yield component(id, kind)
    for id in (*BUILTIN, *plugins()):
        with contextlib.suppress(ConfigError):
            yield component(id)


def settings_of(agent: str, env: str) -> str:
    """The settings for a pair of agent and environment, file by file; ConfigError without any."""
    files = tuned_files(agent, env)
    if not files:
        component(agent, "agents")
        component(env, "envs")
        hint = settings_with(agent) or settings_with(env)
        raise ConfigError(f"no settings are packaged for {agent} with {env}. {hint}".rstrip())
    pages = []
    for path in files:
        values = dict(read_source(path).values)
        models = values.pop("models", {})
        rows = [f"  {key} = {shown(value)}\n" for key, value in values.items()]
        for model, own in models.items() if isinstance(models, dict) else ():
            rows += [f"  model.{key} = {shown(v)} (with {model})\n" for key, v in own.items()]
        pages.append(f"settings for {agent} with {env} ({path}):\n{''.join(rows)}")
    return "\n".join(pages)


def settings_with(id: str) -> str:
    """With what else there are settings for this agent or environment; empty without any."""
    envs = {path.stem for path in tuned_files(agent=id)}
    agents = {path.parent.name for path in tuned_files(env=id)}
    if not envs | agents:
        return ""
    one = (id, min(envs)) if envs else (min(agents), id)
    others = ", ".join(sorted(envs | agents))
    return f"\nsettings are packaged for use with {others}: exarl describe {one[0]} {one[1]}\n"


def _environment(id: str) -> Component:
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
    paragraphs = [text for text in doc.split("\n\n") if not text.startswith("#")]
    return Component("env", id, paragraphs[0] if paragraphs else "", schema, more)


def ids(kind: str) -> list[str]:
    """The registered ids of ``agents``, ``workflows``, ``models`` or ``envs``."""
    if kind != "envs":
        return KINDS[kind].ids()
    from exarl.envs import env_ids

    return env_ids()
