"""From layers of values to one frozen, checked configuration that knows the origin of every value."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from exarl.config.layers import (
    FAMILIES,
    PACKAGED,
    Source,
    exists,
    folder_sources,
    for_network,
    layer_folders,
    read_source,
    tuned_name,
)
from exarl.config.learner import STOPS, LearnerConfig
from exarl.config.schema import Parameter, Schema, check, schema_of
from exarl.errors import ConfigError, as_one, did_you_mean


class Declared(NamedTuple):
    """What a component declares."""

    schema: Schema
    open_ended: bool = False
    """Whether it accepts parameters beside those of its schema."""
    defaults: Mapping[str, Any] = {}
    """Of an agent: defaults that take the place of those of the run and of networks, in the form of a
    tuned file."""


Lookup = Callable[[str, str], Declared]
"""(family, id) -> what the component declares; ConfigError if there is none."""

AUTO = "auto"
"""The origin of settings that ``exarl train --auto`` has chosen, and its flag."""
SELECTORS = {"agent": "agent", "env": "env", "workflow": "workflow", "model": "model_type"}
DEFAULT_TOTAL_STEPS = 100_000
NAMES = {"agent": "agent", "env": "environment", "workflow": "workflow", "model": "network"}
"""What the families of components are called in messages."""

ELSEWHERE = {
    "lr": "learning_rate",
    "timesteps": "total_steps",
    "total_timesteps": "total_steps",
    "episodes": "n_episodes",
    "max_episode_steps": "n_steps",
    "num_envs": "envs_per_actor",
    "buffer_size": "replay_capacity",
    "discount": "gamma",
    "ent_coef": "entropy_scale",
    "net_arch": "hidden",
    "model": "model_type",
}
"""Names of some parameters in other libraries, and their names here."""

C = TypeVar("C")


@dataclass(frozen=True)
class Configuration:
    """A resolved run: the learner's parameters, each component's values, and their origins."""

    learner: LearnerConfig
    values: Mapping[str, Mapping[str, Any]]
    origins: Mapping[str, str]

    def build(self, family: str, kind: type[C]) -> C:
        """The parameters of one family as the component's dataclass."""
        return kind(**self.values[family])

    def to_json(self) -> dict[str, object]:
        return {**{f: dict(self.values[f]) for f in FAMILIES}, "origins": dict(self.origins)}


def stored_source(data: Mapping[str, Any], origin: str) -> Source:
    """The content of a run's ``config.json`` as a source; ConfigError when a family is missing."""
    for family in FAMILIES:
        if not isinstance(data, Mapping) or not isinstance(data.get(family), Mapping):
            raise ConfigError(f"{origin} is damaged: it has no parameters of the {family}")
    return Source({f"{f}.{key}": value for f in FAMILIES for key, value in data[f].items()}, origin)


def load(
    lookup: Lookup,
    explicit: Sequence[Source] = (),
    *,
    config: Path | None = None,
    weak: Sequence[Source] = (),
) -> Configuration:
    """Resolve the packaged, user and project layers, then ``config`` (a file or a folder of files
    that takes the project's place), then the ``explicit`` sources; ``weak`` ones only take the place
    of defaults."""
    if config is not None and not exists(config):
        raise ConfigError(f"cannot read {config}: no such file or folder")
    is_folder = config is not None and config.is_dir()
    folders = layer_folders(config if is_folder else None)
    if config is not None and not is_folder:
        folders.pop()
        explicit = [read_source(config), *explicit]

    def layers(ids: Mapping[str, str]) -> list[Source]:
        found = [s for f in folders for s in folder_sources(f, ids)]
        general = [s for s in found if is_default(s.origin)]
        return [*general, *weak, *(s for s in found if s not in general), *explicit]

    ids = _select(layers({}))
    return resolve(lookup, [*_agent_defaults(lookup, ids), *layers(ids)])


def is_default(origin: str) -> bool:
    """Whether a value of this origin is a general default, which no one chose."""
    own = origin.removeprefix(PACKAGED)
    return origin.startswith("default") or (own != origin and not own.startswith("/tuned"))


def resolve(lookup: Lookup, sources: Sequence[Source]) -> Configuration:
    """Check every value of every source and freeze the result; later sources override earlier ones.

    ConfigError names all mistakes.
    """
    ids = _select(sources)
    origins: dict[str, str] = {}
    for source in sources:
        origins |= {f"learner.{k.removeprefix('learner.')}": source.origin for k in source.values}
    schemas, open_ended = _schemas(lookup, ids, origins)
    values: dict[str, dict[str, Any]] = {
        family: {name: p.default for name, p in schema.items() if _storable(p)}
        for family, schema in schemas.items()
    }
    origins = {f"{f}.{name}": "default" for f in FAMILIES for name in values[f]}
    mistakes: list[ConfigError] = []
    for source in sources:
        for key, value in source.values.items():
            try:
                parameter, family = _find(key, source, schemas, open_ended)
                checked = check(parameter, value, source.origin, text=source.text)
            except ConfigError as error:
                mistakes.append(error)
                continue
            values[family][parameter.name] = checked
            origins[f"{family}.{parameter.name}"] = source.origin
    if mistakes:
        raise as_one(mistakes)
    for family, schema in schemas.items():
        missing = [n for n, p in schema.items() if p.required and n not in values[family]]
        if missing:
            raise ConfigError(f"{family} '{ids.get(family)}' needs a value for '{missing[0]}'")
    _default_stop(values["learner"], origins)
    try:
        learner = LearnerConfig(**values["learner"])
    except ConfigError as error:
        origin = origins.get(f"learner.{str(error).split()[0]}")
        raise ConfigError(f"{error} ({origin})" if origin else str(error)) from error
    return Configuration(learner, values, origins)


def _agent_defaults(lookup: Lookup, ids: Mapping[str, str]) -> list[Source]:
    """The agent's own defaults, as the weakest source."""
    origin = f"default of {ids['agent']}"
    try:
        own = lookup("agent", ids["agent"]).defaults
    except ConfigError:  # ``resolve`` says so, with the origin of the id
        return []
    return [Source(for_network(own, ids["model"], origin), origin)] if own else []


def tuned_in(configuration: Configuration) -> list[str]:
    """One message for each file of tuned settings that this configuration uses."""
    agent, env = configuration.learner.agent, configuration.learner.env
    counts = Counter(
        o for o in configuration.origins.values() if o.endswith(tuned_name(agent, env))
    )
    return [
        f"used: {count} setting{'s' if count > 1 else ''}"
        f" {'packaged' if origin.startswith(PACKAGED) else f'in {origin}'} for {agent} with {env};"
        f" see 'exarl describe {agent} {env}'"
        for origin, count in counts.items()
    ]


def find_parameter(lookup: Lookup, sources: Sequence[Source], key: str) -> Parameter:
    """The parameter that ``key`` names, among the components that ``sources`` select."""
    schemas, open_ended = _schemas(lookup, _select(sources), {})
    return _find(key, Source({}, "command line"), schemas, open_ended)[0]


def _storable(parameter: Parameter) -> bool:
    """Whether a default can be stored in config.json. Others (a path, an array, infinity) are left to
    the environment's constructor."""
    if parameter.required:
        return False
    try:
        json.dumps(parameter.default, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _select(sources: Sequence[Source]) -> dict[str, str]:
    """The agent, environment, workflow and network that the sources select (family -> id)."""
    learner = schema_of(LearnerConfig)
    ids = {family: learner[key].default for family, key in SELECTORS.items()}
    for source in sources:
        for family, key in SELECTORS.items():
            for spelling in (key, f"learner.{key}"):
                if spelling in source.values and source.family in (None, "learner"):
                    value = source.values[spelling]
                    ids[family] = check(learner[key], value, source.origin, text=source.text)
    return ids


def _schemas(
    lookup: Lookup, ids: Mapping[str, str], origins: Mapping[str, str]
) -> tuple[dict[str, Schema], set[str]]:
    schemas: dict[str, Schema] = {"learner": schema_of(LearnerConfig)}
    open_ended: set[str] = set()
    mistakes: list[ConfigError] = []
    for family in FAMILIES[1:]:
        try:
            declared = lookup(family, ids[family])
        except ConfigError as error:
            origin = origins.get(f"learner.{SELECTORS[family]}")
            mistakes.append(ConfigError(f"{error} ({origin})" if origin else str(error)))
            continue
        schemas[family] = declared.schema
        if declared.open_ended:
            open_ended.add(family)
    if mistakes:
        raise as_one(mistakes)
    return schemas, open_ended


def _find(
    key: str, source: Source, schemas: Mapping[str, Schema], open_ended: set[str]
) -> tuple[Parameter, str]:
    """The parameter that a key names, and its family: ``family.name``, or a name of one component.

    A name that the run itself has means the run's parameter, even if a component has the same name.
    """
    family, dot, name = key.partition(".")
    if dot and family not in FAMILIES:
        hint = did_you_mean(family, FAMILIES) or f" (families: {', '.join(FAMILIES)})"
        raise ConfigError(f"unknown family '{family}' in '{key}' ({source.origin}){hint}")
    if dot:
        candidates = [family]
    else:
        candidates, name = [source.family] if source.family else list(FAMILIES), key
    having = [family for family in candidates if name in schemas[family]]
    if len(having) > 1 and having[0] != "learner":
        dashes = "--" if source.text else ""
        owners = " and ".join(f"the {NAMES[family]}" for family in having)
        ways = " or ".join(f"{dashes}{family}.{name}" for family in having)
        raise ConfigError(
            f"{owners} each have a parameter '{name}' ({source.origin}): write {ways}"
        )
    if having:
        return schemas[having[0]][name], having[0]
    if "env" in candidates and "env" in open_ended and (dot or source.family == "env"):
        return Parameter(name, Any, dataclasses.MISSING), "env"
    known = {n for f in candidates for n in schemas[f]}
    here = ELSEWHERE.get(name.lower())
    hint = f"; did you mean '{here}'?" if here in known else did_you_mean(name, known)
    raise ConfigError(f"unknown parameter '{key}' ({source.origin}){hint}")


def _default_stop(learner: dict[str, object], origins: dict[str, str]) -> None:
    if all(learner[name] is None for name in STOPS):
        learner["total_steps"] = DEFAULT_TOTAL_STEPS
        origins["learner.total_steps"] = "default, since no other stop was given"
