"""``exarl list`` and ``exarl describe``."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from exarl import registry
from exarl.cli import words as line
from exarl.cli.tables import parameter_table, shown
from exarl.config import Schema, read_source, schema_of, tuned_files
from exarl.errors import ConfigError, did_you_mean

LIST_HELP = (
    "usage: exarl list [agents|envs|workflows|models]\n\nLists the ids of installed components.\n"
)
DESCRIBE_HELP = """\
usage: exarl describe ID [--key value ...]
       exarl describe AGENT ENV

Describes an agent, environment, workflow or network and its parameters: type, default, range and
meaning. With an agent and an environment, prints the settings for this pair: those packaged with EXARL
and those of your own tuned/AGENT/ENV.json. With parameters of an environment, creates it and prints its
spaces and what it says about itself.
"""
KINDS = {
    "agents": registry.agents,
    "workflows": registry.workflows,
    "models": registry.networks,
}


@dataclass(frozen=True)
class Component:
    """A registered component: its kind, id, description and parameters."""

    kind: str
    id: str
    doc: str
    schema: Schema
    more: str = ""

    def page(self) -> str:
        table = parameter_table(self.schema) or "  none\n"
        return f"{self.id} ({self.kind})\n\n{self.doc}\n{self.more}\nparameters:\n{table}"


def list_ids(words: list[str]) -> int:
    kinds = words or [*KINDS, "envs"]
    for kind in kinds:
        line.check_choice(kind, [*KINDS, "envs"], f"cannot list '{kind}'")
    for kind in kinds:
        sys.stdout.write("\n".join([f"{kind}:", *(f"  {id}" for id in ids(kind)), ""]))
    return 0


def describe(words: list[str]) -> int:
    id = line.take_path(words, "id")
    if words and not words[0].startswith("--"):
        env = words.pop(0)
        line.nothing_left(words)
        sys.stdout.write(settings_of(id, env))
        return 0
    found = component(id)
    if words and found.kind == "env":
        sys.stdout.write(made(id, words))
        return 0
    line.nothing_left(words)
    sys.stdout.write(found.page() + settings_with(id))
    return 0


def made(id: str, words: list[str]) -> str:
    """The spaces of an environment that is made with these flags, and what it says about itself."""
    from exarl.cli.check import env_parameters
    from exarl.envs.base import described
    from exarl.envs.registration import make_env

    env, limit = make_env(id, env_parameters(id, words))
    try:
        rows = {"observations": env.observation_space, "actions": env.action_space}
        shown = {name: str(space) for name, space in rows.items()}
        shown |= {"limit": f"{limit} steps"} if limit else {}
        shown |= {f"about {name}": text for name, text in described(env).items()}
    finally:
        env.close()
    return "".join(f"{name:<18}  {' '.join(text.split())}\n" for name, text in shown.items())


def component(id: str, kind: str | None = None) -> Component:
    """The component registered as ``id``, of this kind or of any; ConfigError if there is none."""
    for known, registered in KINDS.items():
        if kind in (None, known) and (id in registered or registered.planned(id) or kind):
            found = registered.load(id)
            schema = schema_of(found.Config) if hasattr(found, "Config") else {}
            doc = inspect.getdoc(found) or ""
            own = defaults_of(id, getattr(found, "defaults", {}))
            return Component(known.removesuffix("s"), id, doc, schema, own)
    return _environment(id)


def catalogue() -> Iterator[Component]:
    """Yield every component of EXARL and of installed plug-ins that can be imported."""
    from exarl.envs.registration import packaged_ids, plugins

    for kind in KINDS:
        for id in ids(kind):
            with contextlib.suppress(ConfigError):
                yield component(id, kind)
    for id in (*packaged_ids(), *plugins()):
        with contextlib.suppress(ConfigError):
            yield component(id)


def settings_of(agent: str, env: str) -> str:
    """The settings for an agent and an environment, file by file; ConfigError if there are none."""
    files = tuned_files(agent, env)
    if not files:
        component(agent, "agents")
        component(env, "envs")
        hint = settings_with(agent) or settings_with(env)
        raise ConfigError(f"there are no settings for {agent} with {env}. {hint}".rstrip())
    return "\n".join(
        f"settings for {agent} with {env} ({path}):\n{listed(read_source(path).values)}"
        for path in files
    )


def defaults_of(id: str, settings: Mapping[str, Any]) -> str:
    """The defaults that an agent has for the run and for networks; empty if it has none."""
    if not settings:
        return ""
    return f"\ndefaults of the run and of networks with {id}:\n{listed(settings)}"


def listed(settings: Mapping[str, Any]) -> str:
    """Settings in the form of a tuned file, one per line."""
    rows = [f"  {key} = {shown(v)}\n" for key, v in settings.items() if key != "models"]
    models = settings.get("models", {})
    for model, own in models.items() if isinstance(models, Mapping) else ():
        rows += [f"  model.{key} = {shown(v)} (with {model})\n" for key, v in own.items()]
    return "".join(rows)


def settings_with(id: str) -> str:
    """A line on the pairs that have settings for this agent or environment; empty if none has."""
    envs = {path.stem for path in tuned_files(agent=id)}
    agents = {path.parent.name for path in tuned_files(env=id)}
    if not envs | agents:
        return ""
    one = (id, min(envs)) if envs else (min(agents), id)
    others = ", ".join(sorted(envs | agents))
    return f"\nthere are settings for use with {others}: exarl describe {one[0]} {one[1]}\n"


def _environment(id: str) -> Component:
    from exarl.envs.registration import creator_of, describe_env, find_spec

    try:
        spec = find_spec(id)
    except ConfigError as error:
        known = [i for registered in KINDS.values() for i in registered.ids()]
        hint = did_you_mean(id, known)
        raise ConfigError(f"there is no '{id}'{hint}" if hint else str(error)) from error
    schema, open_ended = describe_env(id)
    doc = inspect.getdoc(creator_of(spec)) or ""
    limit = spec.max_episode_steps
    more = f"\nepisodes are truncated after {limit} steps\n" if limit else ""
    if open_ended:
        more += "other arguments are accepted as --env.NAME and passed to the constructor\n"
    paragraphs = [text for text in doc.split("\n\n") if not text.startswith("#")]
    return Component("env", id, paragraphs[0] if paragraphs else "", schema, more)


def ids(kind: str) -> list[str]:
    """The registered ids of ``agents``, ``workflows``, ``models`` or ``envs``."""
    if kind != "envs":
        return KINDS[kind].ids()
    from exarl.envs import env_ids

    return env_ids()
