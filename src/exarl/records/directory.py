"""The run directory: the paths of all files of a run, and how they are read and written."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exarl.errors import ConfigError, StorageError
from exarl.records.replacing import remove, replacing

_FILES = {
    "config": "config.json",
    "manifest": "manifest.json",
    "progress": "progress.csv",
    "result": "result.jsonl",
    "summary": "summary.json",
    "checkpoints": "checkpoints",
    "best": "best",
    "start": "start",
    "controller": "controller.json",
    "evaluations": "evaluations.csv",
    "events": "events",
    "logs": "logs",
    "envs": "envs",
    "data": "data",
    "population": "population.csv",
    "curve": "learning_curve.png",
    "trace": "trace.json",
    "lock": "lock.json",
    "join_key": "join.key",
}

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk without room, for this user or this file at least."""
_WAITING_S = 600.0  # a process that waits for a run rewrites its card more often than this


@dataclass(frozen=True)
class RunDirectory:
    """The paths of one run, by name: ``run.config``, ``run.progress`` ... Does not read the disk."""

    path: Path

    def __getattr__(self, name: str) -> Path:
        if name in _FILES:
            return self.path / _FILES[name]
        raise AttributeError(name)

    def rank_file(self, stem: str, rank: int, suffix: str) -> Path:
        """A file that belongs to one rank, e.g. ``logs/rank_0003.log``."""
        return self.logs / f"{stem}_{rank:04d}.{suffix}"

    def create(self, config: Mapping[str, object], manifest: Mapping[str, object]) -> None:
        """Create the directory; ``config.json`` is written last, so a run that has it is whole."""
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
    """A new, unique path below ``output_dir``; nothing is created yet."""
    now, id = time.strftime("%Y%m%d-%H%M%S"), secrets.token_hex(3)
    name = f"{agent}_{in_a_path(env)}_{workflow}_{now}_{id}"
    return RunDirectory(expand(output_dir) / name)


def in_a_path(id: str) -> str:
    """An id in a form that can be part of a file's name."""
    return id.replace("/", "-").replace(":", "-")


def expand(path: str | os.PathLike[str]) -> Path:
    """``path`` with ``~`` replaced by the home folder; ConfigError when there is none."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"cannot find the home folder of {path}") from error


def absolute(path: str | os.PathLike[str] = ".") -> Path:
    """``path`` as an absolute one, which stays right when an environment changes the working folder."""
    try:
        return expand(path).absolute()
    except FileNotFoundError as error:
        raise ConfigError("the working folder is gone; change to one that exists") from error


def check_place(folder: Path) -> None:
    """ConfigError when ``folder`` cannot be created or written to; nothing is changed."""
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
    """Create ``folder``; if the body raises, whatever was created and is still empty is removed."""
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
    """The error in words, without its number."""
    return getattr(error, "strerror", None) or str(error)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def stored_ranks(run: RunDirectory) -> int:
    """The number of ranks of a run, from its manifest; ConfigError when that is damaged."""
    manifest = read_json(run.manifest)
    try:
        world = int(manifest["layout"]["world"])
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{run.manifest} is damaged: it names no number of ranks") from error
    if world < 1:
        raise ConfigError(f"{run.manifest} is damaged: a run on {world} ranks")
    return world


def open_run(path: str | os.PathLike[str], *, fixed: bool = False) -> RunDirectory:
    """The run directory at ``path``, with ``fixed`` as an absolute path.

    ConfigError, which names the path as it was given, when no run is there.
    """
    run = RunDirectory(absolute(path) if fixed else Path(path))
    if not run.exists() and not _is_folder(run.path):
        raise ConfigError(f"no run directory at {path}")
    if not run.exists():
        raise ConfigError(f"{path} holds no run (config.json is missing)")
    return run


def sweep_left_over(run: RunDirectory) -> None:
    """Remove unfinished files of killed processes; only the holder of the run may call this."""
    for folder in (run.path, run.logs, run.checkpoints, run.best, run.data):
        for path in folder.glob(".*.tmp"):
            with contextlib.suppress(OSError):
                waits = path.name.startswith(f".{run.lock.name}.")  # the card of a waiting process
                if waits and time.time() - path.stat().st_mtime < _WAITING_S:
                    continue
                remove(path)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure to write below ``path`` into a StorageError of one line."""
    try:
        yield
    except OSError as error:
        advice = f"; make room, then: exarl resume {path}" if error.errno in FULL else ""
        place = error.filename if isinstance(error.filename, str) else path
        raise StorageError(f"cannot write to {place}: {reason(error)}{advice}") from error


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file; OSError for anything else, such as a pipe, which could block for ever."""
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(None, "it is not a regular file", str(path))
    return handle


def read_regular(path: Path) -> bytes:
    """The content of a regular file; OSError for any other kind of file."""
    with open(open_regular(path), "rb") as file:
        content = file.read()
    if content is None:  # some files of the kernel would block
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


def write_json(path: Path, data: object) -> None:
    """Write a JSON file so that it is whole on disk, or as it was before."""
    with replacing(path, sync=True) as aside:
        aside.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
