"""Seals: keyed checksums that only this user can make, which show that a file is as they wrote it."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
from pathlib import Path

KEY = "key"
"""The file in ``~/.exarl`` that holds the key; every reader of it can make seals."""
_BYTES = 32


def make_seal(place: Path, facts: object) -> str | None:
    """The seal on ``facts`` of the run or study at ``place``; None where no key can be stored."""
    key = _read_key() or _make_key()
    return _checksum(key, place, facts) if key else None


def is_sealed(place: Path, facts: object, seal: object) -> bool:
    """Whether ``seal`` is this user's seal on exactly these facts at this place."""
    key = _read_key()
    if key is None or not isinstance(seal, str) or not seal.isascii():
        return False
    return hmac.compare_digest(_checksum(key, place, facts), seal)


def has_key() -> bool:
    """Whether seals can be checked here."""
    return _read_key() is not None


def _checksum(key: bytes, place: Path, facts: object) -> str:
    # With the place, since a copy of an own run beside another user's modules is no own run.
    plain = json.loads(json.dumps(facts))
    text = json.dumps([os.path.realpath(place), plain], sort_keys=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key_file() -> Path | None:
    try:
        return Path.home() / ".exarl" / KEY
    except RuntimeError:  # a user without a home
        return None


def _read_key() -> bytes | None:
    """The user's key; None without a key that only the user can read and write."""
    path = _key_file()
    try:
        if path is None:
            return None
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            about = os.fstat(file.fileno())
            private = about.st_uid == os.geteuid() and not about.st_mode & 0o077
            key = file.read(_BYTES) if private and stat.S_ISREG(about.st_mode) else b""
    except OSError:
        return None
    return key if len(key) == _BYTES else None


def _make_key() -> bytes | None:
    """A new key, or that of another process which was faster; None where none can be stored."""
    path = _key_file()
    if path is None or not path.parent.parent.is_dir():
        return None
    aside = path.with_name(f".{KEY}.{secrets.token_hex(8)}.tmp")
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(aside, path)  # atomic, and never replaces the key of another process
    with contextlib.suppress(OSError):
        aside.unlink()
    return _read_key()
