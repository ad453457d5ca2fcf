"""Where values come from: packaged defaults, the user's and the project's files, the command line.

A configuration folder has the layout of the original EXARL::

    learner_cfg.json   agent_cfg/<id>.json   model_cfg/<id>.json   env_cfg/<id>.json
    workflow_cfg/<id>.json   tuned/<agent>/<env>.json (settings for this pair; those of networks
    are under "models", by id: {"models": {"MLP": {"hidden": [64, 64]}}})
"""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from exarl.errors import ConfigError

FAMILIES = ("learner", "agent", "model", "workflow", "env")
PACKAGED = str(files("exarl.config") / "defaults")
"""The folder of the packaged settings."""


@dataclass(frozen=True)
class Source:
    """Some values and where they come from.

    ``family`` None means that keys may belong to any family. ``text`` means that values are text from
    a command line rather than JSON.
    """

    values: Mapping[str, Any]
    origin: str
    family: str | None = None
    text: bool = False


def folder_sources(folder: Path, ids: Mapping[str, str]) -> list[Source]:
    """The sources in a configuration folder for the selected ``ids`` (family -> id)."""
    names: list[tuple[str, str | None]] = [("learner_cfg.json", None)]
    names += [
        (f"{family}_cfg/{ids[family]}.json", family) for family in FAMILIES[1:] if family in ids
    ]
    paths = [(folder / name, family) for name, family in names]
    found = [read_source(path, family) for path, family in paths if exists(path, Path.is_file)]
    tuned = folder / tuned_name(ids.get("agent"), ids.get("env"))
    return [*found, tuned_source(tuned, ids.get("model"))] if exists(tuned, Path.is_file) else found


def tuned_name(agent: str | None, env: str | None) -> str:
    """The file, within a configuration folder, of the settings for an agent with an environment."""
    return f"tuned/{agent}/{env}.json"


def tuned_files(agent: str | None = None, env: str | None = None) -> list[Path]:
    """The files of tuned settings for an agent and an environment (None: any), weakest layer first."""
    pattern = tuned_name(*(glob.escape(id) if id else "*" for id in (agent, env)))
    found = [sorted(folder.glob(pattern)) for folder in layer_folders(None)]
    return [path for paths in found for path in paths if exists(path, Path.is_file)]


def tuned_source(path: Path, model: str | None) -> Source:
    """The settings in a tuned file, for a run with the network ``model``."""
    source = read_source(path)
    return Source(for_network(source.values, model, source.origin), source.origin)


def for_network(settings: Mapping[str, Any], model: str | None, origin: str) -> dict[str, Any]:
    """Settings with those of the network ``model`` in place of ``models``, which has them by id."""
    models = settings.get("models", {})
    if not isinstance(models, Mapping) or not all(isinstance(m, Mapping) for m in models.values()):
        raise ConfigError(f"'models' maps network ids to their parameters ({origin})")
    own = {f"model.{key}": value for key, value in models.get(model, {}).items()}
    return {key: value for key, value in settings.items() if key != "models"} | own


def exists(path: Path, test: Callable[[Path], bool] = Path.exists) -> bool:
    """Whether ``path`` exists; False for a name that no file can have."""
    try:
        return test(path)
    except (OSError, ValueError):
        return False


def layer_folders(project: Path | None) -> list[Path]:
    """Configuration folders, weakest first; ``project`` replaces ``./exarl/config``."""
    return [Path(PACKAGED), Path.home() / ".exarl/config", project or Path("exarl/config")]


def read_source(path: Path, family: str | None = None) -> Source:
    """One JSON file, with nested families (``{"agent": {"epsilon": 1}}``) as dotted keys.

    ConfigError in one line when it cannot be read or is not a JSON object.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a text file in UTF-8") from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    except ValueError as error:  # Python refuses to read a number of thousands of digits
        raise ConfigError(f"{path} contains a number with too many digits") from error
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold a JSON object, not {type(values).__name__}")
    return Source(values if family else _dotted(values), str(path), family)


class Bare(str):
    """The value "true" of a flag that was given without a value."""


def parse_flags(words: Sequence[str]) -> dict[str, str]:
    """``--key value``, ``--key=value`` and a bare ``--key`` (``Bare``) as a mapping.

    Keys may be spelt with ``-`` or ``_``. ConfigError for anything else.
    """
    flags: dict[str, str] = {}
    position = 0
    while position < len(words):
        word = words[position]
        if not word.startswith("--") or len(word) == 2:
            raise ConfigError(
                f"unexpected '{word}' on the command line; parameters are --key value"
            )
        key, equals, value = word[2:].partition("=")
        position += 1
        if not equals:
            following = words[position : position + 1]
            if following and not following[0].startswith("--"):
                value = following[0]
                position += 1
            else:
                value = Bare("true")
        flags[key.replace("-", "_")] = value
    return flags


def _dotted(values: Mapping[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in values.items():
        if key in FAMILIES and isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": item for inner, item in value.items()}
        else:
            flat[key] = value
    return flat
