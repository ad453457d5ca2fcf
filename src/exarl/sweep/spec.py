"""A study: the training, the parameters that are varied, how settings are chosen and rated."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from exarl.comm.layout import plan_layout
from exarl.config import Configuration, LearnerConfig, Parameter, Source, check, param, schema_of
from exarl.config.grammar import split
from exarl.config.resolve import SELECTORS, find_parameter
from exarl.errors import ConfigError, did_you_mean
from exarl.records.directory import expand, read_json
from exarl.records.metrics import INFO
from exarl.run.checks import check_configuration
from exarl.run.configure import configure, lookup
from exarl.sweep import space as spaces
from exarl.sweep.space import Choices, Dimension, Point, Range, Space, Value

DEFAULT_TRIALS = 20
CHOSEN = ("run_dir", "output_dir", "seed")
"""Parameters that a sweep sets itself; the user may only give the first of the seeds."""
_TABLES = ("sweep", "space", "train")


@dataclass(frozen=True)
class SweepOptions:
    """How settings are chosen, rated and run."""

    trials: int | None = param(
        None, f"settings to try (default {DEFAULT_TRIALS}; for a grid: all)", ge=1, le=10**6
    )
    seeds: int = param(3, "trainings per setting, with different seeds", ge=1, le=1000)
    sampler: Literal["tpe", "gp", "random", "grid"] = param(
        "tpe", "how settings are chosen; tpe and gp learn from the settings that have ended"
    )
    pruner: Literal["none", "median", "halving"] = param(
        "none", "stop a setting early if its first seed does worse than others at the same step"
    )
    objective: Literal["median", "iqm", "mean"] = param(
        "median", "how the values of a setting's seeds are combined; iqm: interquartile mean"
    )
    metric: str = param(
        "last_reward_mean",
        "the value of a training, maximised: last_reward_mean, best_reward_mean, auc (mean over all"
        " steps), evaluation (the best), last_evaluation, or a column such as info/energy_last;"
        " info/energy_last:min minimises it",
    )
    points: int = param(5, "grid: number of values of a range without a step", ge=2, le=1000)
    marks: int = param(10, "pruner: how often a training is compared with others", ge=1, le=1000)
    sweep_seed: int = param(0, "seed of the choice of settings", ge=0, le=2**63 - 1)
    batch: int | None = param(
        None,
        "number of settings chosen at once; all end before the next are chosen, so results repeat",
        ge=1,
    )
    timeout: float | None = param(None, "seconds after which a training counts as failed", gt=0)
    procs: int = param(1, "MPI ranks per training", ge=1, le=100_000)
    jobs: int | None = param(None, "trainings at a time (default: as the cores allow)", ge=1)
    executor: Literal["local", "mpi", "slurm", "ray", "fused"] | None = param(
        None, "where trainings run (default: mpi under mpiexec or srun, else local)"
    )
    address: str | None = param(None, "ray: a cluster to join (default: start one)")


METRICS = ("last_reward_mean", "best_reward_mean", "auc", "evaluation", "last_evaluation")
"""Values of a training beside the columns of log_info."""
PASSING = ("jobs", "executor", "address")
"""Options that hold for one command and are not stored."""
MAY_CHANGE = ("trials", "batch", "timeout", "procs", *PASSING)
"""Options that may change when a study is resumed; the others decide its settings and values."""


@dataclass(frozen=True)
class StudyConfig:
    """A study, checked. ``train`` holds the parameters that all its trainings share, as text;
    ``config`` is their configuration file and ``folder`` the directory they run in."""

    options: SweepOptions
    space: Space
    train: Mapping[str, str]
    config: str | None = None
    folder: str = "."

    @property
    def trials(self) -> int:
        """The number of settings."""
        if self.options.sampler == "grid":
            return len(spaces.grid(self.space, self.options.points))
        return self.options.trials or DEFAULT_TRIALS

    def seeds(self) -> list[int]:
        """The seeds of each setting: 1, 2, ... or from the given ``seed`` on."""
        first = int(self.train.get("seed", 1))
        return list(range(first, first + self.options.seeds))

    def first_point(self) -> dict[str, Value]:
        """The setting with the first choice of each parameter, or the lower end of its range."""
        return {key: dimension.ends()[0] for key, dimension in self.space.items()}

    def words(self, point: Point) -> list[str]:
        """The arguments of ``exarl train`` for a setting, without seed and run directory."""
        config = [f"--config={self.config}"] if self.config else []
        shared = {key: value for key, value in self.train.items() if key != "seed"}
        return config + spaces.words(shared) + spaces.words(point)

    def configuration(self, point: Point) -> Configuration:
        """The configuration of ``exarl train`` for a setting."""
        words = [word for word in self.words(point) if not word.startswith("--config=")]
        return configure(self.config, words)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": 1,
            "folder": self.folder,
            "config": self.config,
            "sweep": {k: v for k, v in asdict(self.options).items() if k not in PASSING},
            "space": {key: _dimension_json(dimension) for key, dimension in self.space.items()},
            "train": dict(self.train),
        }

    def digest(self) -> str:
        """A short hash of everything that a resumed study must share with the stored one."""
        text = json.dumps(_identity(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]


def read_study(path: Path) -> StudyConfig:
    """The study in a ``study.json``; ConfigError when it is damaged."""
    data = read_json(path)
    try:
        space = {key: _dimension(value) for key, value in data["space"].items()}
        options = SweepOptions(**checked_options(data["sweep"], str(path)))
        return StudyConfig(options, space, data["train"], data["config"], data["folder"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is damaged: {error}") from error


def same_study(stored: StudyConfig, asked: StudyConfig, place: Path) -> None:
    """ConfigError when the study stored in ``place`` differs from the one asked for."""
    before, now = _identity(stored), _identity(asked)
    for key in {**before, **now}:
        if before.get(key) != now.get(key):
            raise ConfigError(
                f"{place} contains a study with {key} {_shown(before.get(key))}, not"
                f" {_shown(now.get(key))}; choose another --study"
            )


def checked_options(
    values: Mapping[str, object], origin: str, *, text: bool = False
) -> dict[str, Any]:
    """Checked options; ConfigError names the key, its origin and the nearest valid name."""
    schema = schema_of(SweepOptions)
    for key in values:
        if key not in schema:
            raise ConfigError(f"unknown option '{key}' ({origin}){did_you_mean(key, schema)}")
    return {k: check(schema[k], v, origin, text=text) for k, v in values.items()}


def read_toml(path: Path) -> dict[str, dict[str, object]]:
    """The tables ``sweep``, ``space`` and ``train`` of a study file."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    for name, table in tables.items():
        if name not in _TABLES or not isinstance(table, dict):
            hint = did_you_mean(name, _TABLES) or f" (tables: {', '.join(_TABLES)})"
            raise ConfigError(f"unknown table '{name}' ({path}){hint}")
    return {name: tables.get(name, {}) for name in _TABLES}


def describe(
    options: SweepOptions,
    flags: Mapping[str, str],
    tables: Mapping[str, Mapping[str, object]] | None = None,
    config: str | None = None,
) -> StudyConfig:
    """The study that a command line and a study file describe; ConfigError when it cannot be trained.

    A flag ``--key VALUE`` is varied when its value is a range or a list (``space.is_swept``);
    ``--space.key`` always is, ``--train.key`` never. A flag replaces the file's key.
    """
    tables = tables or {}
    varied = {key: _text(value, varied=True) for key, value in tables.get("space", {}).items()}
    fixed = {key: _text(value) for key, value in tables.get("train", {}).items()}
    either: dict[str, str] = {}
    for flag, text in flags.items():
        family, _, rest = flag.partition(".")
        key = rest if family in ("space", "train") else flag
        for place in (varied, fixed, either):
            place.pop(key, None)
        {"space": varied, "train": fixed}.get(family, either)[key] = text
    either, dimensions = _sort(either, varied, fixed, config)
    for key in [*dimensions, *either, *fixed]:
        own = key.removeprefix("learner.")
        if own in CHOSEN and (key != "seed" or key in dimensions):
            raise ConfigError(f"a sweep chooses {own} itself: omit it (see --seeds, --study)")
    if not dimensions:
        raise ConfigError(
            "nothing is varied: give a parameter a range (--learning_rate 1e-4:1e-2:log) or choices"
            " (--gamma 0.9,0.99)"
        )
    fixed |= either
    file = str(expand(config).absolute()) if config else None
    study = StudyConfig(options, dimensions, fixed, file, str(Path.cwd()))
    check_study(study)
    return study


def check_study(study: StudyConfig) -> None:
    """ConfigError when ``exarl train`` would refuse an end of a range or a choice."""
    options = study.options
    if options.sampler == "grid" and (options.trials or study.trials) != study.trials:
        raise ConfigError(
            f"the grid has {study.trials} settings, not {options.trials}: omit --trials, or choose"
            " another --points"
        )
    first = study.first_point()
    if "seed" in study.train:
        configure(None, [f"--seed={study.train['seed']}"])
    for key, dimension in study.space.items():
        for end in dimension.ends():
            found = study.configuration({**first, key: end})
            learner = found.learner
            plan_layout(options.procs, learner.learner_procs, learner.process_per_env)
            check_configuration(found, options.procs)
            check_metric(options, learner)
            if options.pruner != "none" and learner.total_steps is None:
                raise ConfigError("a pruner compares trainings by their steps: give --total_steps")


def check_metric(options: SweepOptions, learner: LearnerConfig) -> None:
    """ConfigError when trainings would have no value of the metric."""
    metric = options.metric
    if metric.startswith(INFO):
        if metric.partition(":")[2] not in ("", "min", "max"):
            raise ConfigError(f"metric {metric} ends in neither :min nor :max")
        if not learner.log_info:
            raise ConfigError(f"metric {metric} needs --log_info with the number's name")
        if options.pruner != "none":
            raise ConfigError(f"a pruner compares mean returns, not {metric}: --pruner none")
    elif metric not in METRICS:
        hint = did_you_mean(metric, METRICS) or f"; there are {', '.join(METRICS)}, info/NAME_last"
        raise ConfigError(f"unknown metric '{metric}'{hint}")
    if metric.endswith("evaluation") and learner.eval_interval is None:
        raise ConfigError(f"metric {metric} needs --eval_interval")


def _sort(
    either: Mapping[str, str],
    varied: Mapping[str, str],
    fixed: Mapping[str, str],
    config: str | None,
) -> tuple[dict[str, str], dict[str, Dimension]]:
    """The flags of ``either`` that are fixed, and all dimensions that are varied."""
    chosen = {**fixed, **either, **varied}
    ids = {key: split(chosen[key])[0] for key in SELECTORS.values() if key in chosen}
    base = configure(config, spaces.words(ids)).learner
    sources = [Source({key: getattr(base, key) for key in SELECTORS.values()}, "command line")]
    dimensions: dict[str, Dimension] = {}
    stay: dict[str, str] = {}
    for key, text in {**varied, **either}.items():
        parameter = _parameter(sources, key)
        if key in varied or spaces.is_swept(text, parameter):
            dimensions[key] = spaces.parse(text, parameter)
        else:
            stay[key] = text
    return stay, dimensions


def _parameter(sources: Sequence[Source], key: str) -> Parameter:
    try:
        return find_parameter(lookup, sources, key)
    except ConfigError as error:
        own = did_you_mean(key, schema_of(SweepOptions))
        raise ConfigError(str(error) + ("" if "did you mean" in str(error) else own)) from error


def _text(value: object, varied: bool = False) -> str:
    """A value of a study file as it would be typed on the command line."""
    if isinstance(value, str):
        return value
    if varied and isinstance(value, list):
        return ",".join(v if isinstance(v, str) else json.dumps(v) for v in value)
    return json.dumps(value, default=str)


def _identity(study: StudyConfig) -> dict[str, object]:
    """What a resumed study must share with the stored one."""
    data = study.to_json()
    sweep = {key: value for key, value in data["sweep"].items() if key not in MAY_CHANGE}
    return {**sweep, "config": data["config"], "space": data["space"], "train": data["train"]}


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) < 120 else text[:117] + "..."


def _dimension_json(dimension: Dimension) -> dict[str, object]:
    if isinstance(dimension, Choices):
        return {"choices": list(dimension.values)}
    return asdict(dimension)


def _dimension(data: Mapping[str, Any]) -> Dimension:
    if "choices" in data:
        return Choices(tuple(data["choices"]))
    return Range(**data)


def changed(study: StudyConfig, options: Mapping[str, Any]) -> StudyConfig:
    """The study with ``options`` (of MAY_CHANGE) replaced; ConfigError for fewer trials than before."""
    trials = options.get("trials")
    if trials is not None and study.options.sampler != "grid" and trials < study.trials:
        raise ConfigError(f"the study has {study.trials} trials already, more than {trials}")
    return dataclasses.replace(study, options=dataclasses.replace(study.options, **options))
