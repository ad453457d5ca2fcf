"""The run directory: where everything of a run stands."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exarl.errors import ConfigError, StorageError

_FILES = {
    "config": "config.json",
    "manifest": "manifest.json",
    "progress": "progress.csv",
    "result": "result.jsonl",
    "summary": "summary.json",
    "checkpoints": "checkpoints",
    "best": "best",
    "evaluations": "evaluations.csv",
    "events": "events",
    "logs": "logs",
    "envs": "envs",
    "population": "population.csv",
    "curve": "learning_curve.png",
    "trace": "trace.json",
    "lock": "lock.json",
}

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a disk answers that has no room left, at least for this user or this file."""
_WAITING_S = 600.0  # a process that waits for a run writes its card again more often than that


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
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot write to {self.path}: {reason(error)}") from error

    def exists(self) -> bool:
        """Whether a run was started here."""
        try:
            return self.config.is_file()
        except OSError:  # a name too long for any file
            return False


def new_run_directory(output_dir: str, agent: str, env: str, workflow: str) -> RunDirectory:
    """A fresh, unique name below ``output_dir``; nothing is created yet."""
    now, id = time.strftime("%Y%m%d-%H%M%S"), secrets.token_hex(3)
    name = f"{agent}_{in_a_path(env)}_{workflow}_{now}_{id}"
    return RunDirectory(expand(output_dir) / name)


def in_a_path(id: str) -> str:
    """An id as part of a file's name."""
    return id.replace("/", "-").replace(":", "-")


def expand(path: str | os.PathLike[str]) -> Path:
    """``path`` with ``~`` spelt out; ConfigError when there is no such home."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"cannot find the home folder of {path}") from error


def absolute(path: str | os.PathLike[str] = ".") -> Path:
    """``path`` from the root, so that it still holds when an environment changes the working folder."""
    try:
        return expand(path).absolute()
    except FileNotFoundError as error:
        raise ConfigError("the working folder is gone; change to one that exists") from error


def check_place(folder: Path) -> None:
    """ConfigError when ``folder`` could not be made or written to; nothing is touched."""
    try:
        standing = next(place for place in (folder, *folder.parents) if place.exists())
        good = standing.is_dir() and os.access(standing, os.W_OK)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot write to {folder}: {reason(error)}") from error
    if not good:
        raise ConfigError(
            f"cannot write to {folder}: {standing} is no folder that can be written to"
        )


@contextlib.contextmanager
def made_folder(folder: Path, *files: Path) -> Iterator[None]:
    """Make ``folder``; if the body fails, what was made and is still empty is removed again."""
    fresh = [place for place in (*files, folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot write to {folder}: {reason(error)}") from error
    try:
        yield
    except BaseException:
        for place in fresh:
            with contextlib.suppress(OSError):
                if place in files and place.exists() and not place.stat().st_size:
                    place.unlink()
                elif place not in files:
                    place.rmdir()
        raise


def reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def stored_ranks(run: RunDirectory) -> int:
    """On how many ranks a run was started."""
    manifest = read_json(run.manifest)
    try:
        world = int(manifest["layout"]["world"])
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{run.manifest} is damaged: it names no number of ranks") from error
    if world < 1:
        raise ConfigError(f"{run.manifest} is damaged: a run on {world} ranks")
    return world


def open_run(path: str | os.PathLike[str]) -> RunDirectory:
    """The run directory at ``path``; ConfigError when no run is there."""
    run = RunDirectory(Path(path))
    if not run.exists() and not _is_folder(run.path):
        raise ConfigError(f"no run directory at {path}")
    if not run.exists():
        raise ConfigError(f"{path} holds no run (config.json is missing)")
    return run


def sweep_left_over(run: RunDirectory) -> None:
    """Remove what processes that were killed had begun to write; only for the holder of the run."""
    for folder in (run.path, run.logs, run.checkpoints, run.best):
        for path in folder.glob(".*.tmp"):
            with contextlib.suppress(OSError):
                waits = path.name.startswith(f".{run.lock.name}.")  # a process, for the run
                if waits and time.time() - path.stat().st_mtime < _WAITING_S:
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure to write below ``path`` into one line that says so."""
    try:
        yield
    except OSError as error:
        advice = f"; make room, then: exarl resume {path}" if error.errno in FULL else ""
        place = error.filename if isinstance(error.filename, str) else path
        raise StorageError(f"cannot write to {place}: {reason(error)}{advice}") from error


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file; OSError for anything else, where opening could wait for ever."""
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(None, "it is not a regular file", str(path))
    return handle


def read_regular(path: Path) -> bytes:
    """All of a regular file; OSError as ``open_regular`` raises it."""
    with open(open_regular(path), "rb") as file:
        content = file.read()
    if content is None:  # files of the kernel's, which would keep a reader waiting
        raise OSError(None, "it cannot be read at once", str(path))
    return content


def read_json(path: Path) -> Any:
    """A JSON file of a run; ConfigError in one line when it cannot be read."""
    try:
        return json.loads(read_regular(path).decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged: {error}") from error


def write_json(path: Path, data: Any) -> None:
    """Write aside, sync, rename: the file is whole or absent, never half."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with aside.open("w", encoding="utf-8") as file:
            json.dump(data, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
