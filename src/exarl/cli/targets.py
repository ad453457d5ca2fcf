"""Checks of the files that commands write, made before any work is done."""

from __future__ import annotations

import os
from pathlib import Path

from exarl.errors import ConfigError
from exarl.records.directory import reason


def check_target(path: Path, replace: bool = True) -> None:
    """ConfigError if ``path`` cannot be written, or if it exists and ``replace`` is false."""
    exists = True
    try:
        is_folder, in_folder = path.is_dir(), path.parent.is_dir()
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        exists = False
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot write {path}: {reason(error)}") from error
    if is_folder:
        raise ConfigError(f"cannot write {path}: it is a folder")
    if not in_folder:
        raise ConfigError(f"cannot write {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"cannot write {path}: the folder {path.parent} is not writable")
    if exists and not replace:
        raise ConfigError(f"{path} already exists; --force replaces it")
