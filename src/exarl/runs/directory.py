"""The run directory: where everything of a run stands."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exarl.errors import ConfigError

_FILES = {
    "config": "config.json",
    "manifest": "manifest.json",
    "progress": "progress.csv",
    "result": "result.jsonl",
    "summary": "summary.json",
    "checkpoints": "checkpoints",
    "events": "events",
    "logs": "logs",
    "curve": "learning_curve.png",
    "trace": "trace.json",
}


@dataclass(frozen=True)
class RunDirectory:
    """Paths of one run, by name: ``run.config``, ``run.progress`` ... Touches no disk itself."""

    path: Path

    def __getattr__(self, name: str) -> Path:
        if name in _FILES:
            return self.path / _FILES[name]
        raise AttributeError(name)

    def rank_file(self, stem: str, rank: int, suffix: str) -> Path:
        """A file that belongs to one rank, e.g. ``logs/rank_0003.log``."""
        return self.logs / f"{stem}_{rank:04d}.{suffix}"

    def create(self, config: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
        """Make the directory; ``config.json`` comes last, so its presence means a whole run."""
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            self.checkpoints.mkdir(exist_ok=True)
            write_json(self.manifest, manifest)
            write_json(self.config, config)
        except OSError as error:
            raise ConfigError(f"cannot write to {self.path}: {error.strerror}") from error

    def exists(self) -> bool:
        """Whether a run was started here."""
        return self.config.is_file()


def new_run_directory(output_dir: str, agent: str, env: str, workflow: str) -> RunDirectory:
    """A fresh, unique name below ``output_dir``; nothing is created yet."""
    safe_env = env.replace("/", "-").replace(":", "-")
    name = f"{agent}_{safe_env}_{workflow}_{time.strftime('%Y%m%d-%H%M%S')}_{secrets.token_hex(3)}"
    return RunDirectory(Path(output_dir).expanduser() / name)


def open_run(path: str | os.PathLike[str]) -> RunDirectory:
    """The run directory at ``path``; ConfigError when no run is there."""
    run = RunDirectory(Path(path))
    if not run.path.is_dir():
        raise ConfigError(f"no run directory at {path}")
    if not run.exists():
        raise ConfigError(f"{path} holds no run (config.json is missing)")
    return run


def read_json(path: Path) -> Any:
    """A JSON file of a run; ConfigError in one line when it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is damaged: {error}") from error


def write_json(path: Path, data: Any) -> None:
    """Write aside, sync, rename: the file is whole or absent, never half."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with aside.open("w", encoding="utf-8") as file:
        json.dump(data, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
