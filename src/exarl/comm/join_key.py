"""The key by which a learner and the simulations that join it know each other."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from exarl.errors import ConfigError

VARIABLE = "EXARL_JOIN_KEY"
"""The environment variable that may hold the key."""
SHORTEST = 20
"""Letters that a key must have: a shorter one could be found by trying."""
_LONGEST = 4096


def key_of(environ: Mapping[str, str], file: Path | None) -> bytes:
    """The key in ``file``, else in the environment; ConfigError where there is none."""
    if file is not None:
        return read_key(file)
    if VARIABLE in environ:
        return _checked(environ[VARIABLE], VARIABLE)
    raise ConfigError(
        f"no key: --key-file names the run's file join.key, or {VARIABLE} holds its content"
    )


def read_key(path: Path) -> bytes:
    """The key in a file; ConfigError when there is none, or others may read it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            about = os.fstat(file.fileno())
            text = file.read(_LONGEST) if stat.S_ISREG(about.st_mode) else b""
    except OSError as error:
        raise ConfigError(f"cannot read the key in {path}: {error.strerror}") from error
    if about.st_mode & 0o077:
        raise ConfigError(f"others may read the key in {path}: chmod 600 {path}")
    return _checked(text.decode("utf-8", "replace"), str(path))


def open_key(environ: Mapping[str, str], path: Path) -> tuple[bytes, bool]:
    """The key of a learner, and whether it is in the file at ``path``, which is made if necessary.

    A key in the environment comes first, and is not written to a file.
    """
    if VARIABLE in environ:
        return _checked(environ[VARIABLE], VARIABLE), False
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return read_key(path), True
    except OSError as error:
        raise ConfigError(f"cannot write the key to {path}: {error.strerror}") from error
    with open(handle, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32) + "\n")
    return read_key(path), True


def _checked(text: str, origin: str) -> bytes:
    key = text.strip().encode()
    if len(key) < SHORTEST:
        raise ConfigError(f"the key in {origin} is too short: it needs {SHORTEST} letters")
    return key
