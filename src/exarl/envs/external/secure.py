"""Who may connect over ZeroMQ: this host without keys, any other with CURVE keys."""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exarl.errors import ConfigError, install

PORT = 5755
LOCAL = f"tcp://127.0.0.1:{PORT}"
"""Where ``exarl serve-env`` listens and ``ExaRemote-v0`` looks by default."""

SERVER_KEY, CLIENT_KEY = "server.key", "client.key"
_KEY_LENGTH = 40  # of a CURVE key in ZeroMQ's Z85 spelling


@dataclass(frozen=True)
class Keys:
    """One side's pair of keys, and the public key of the other side."""

    public: bytes
    secret: bytes
    other: bytes


def load_zmq() -> Any:
    """The ZeroMQ package; ConfigError when it is not installed."""
    try:
        import zmq
    except ImportError as error:
        raise ConfigError(f"this needs ZeroMQ: {install('remote')}") from error
    return zmq


def check_address(address: str, keys: Keys | None) -> str:
    """``address`` as ZeroMQ takes it; ConfigError unless it is of this host or there are keys."""
    address = str(address)
    scheme, separator, place = address.partition("://")
    host, colon, port = place.rpartition(":")
    if scheme == "ipc" and place.startswith("@"):
        raise ConfigError(
            f"{address} is an abstract name, which no folder protects: name a file, ipc://FILE"
        )
    if scheme == "ipc" and place not in ("", "*"):
        return address  # a file: its folder says who may
    if scheme != "tcp" or not separator or not colon or not host or not _is_port(port):
        raise ConfigError(f"an address is tcp://HOST:PORT or ipc://FILE, not '{address}'")
    if host == "localhost":
        host = "127.0.0.1"
    if keys is None and not _is_loopback(host):
        raise ConfigError(
            f"{address} is not on this host alone: that needs keys"
            " ('exarl serve-env --make-keys DIR' makes them, --keys FILE gives them)"
        )
    return f"tcp://{host}:{port}"


def make_keys(folder: Path) -> tuple[Path, Path]:
    """Write a new pair of key files, for the server and for its clients, readable by this user only."""
    zmq = load_zmq()
    paths = folder / SERVER_KEY, folder / CLIENT_KEY
    for path in paths:
        if os.path.lexists(path):
            raise ConfigError(f"{path} is there already")
    (server, server_secret), (client, client_secret) = zmq.curve_keypair(), zmq.curve_keypair()
    contents = (server, server_secret, client), (client, client_secret, server)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path, (public, secret, other) in zip(paths, contents, strict=True):
            words = {"public": public, "secret": secret, "other": other}
            text = json.dumps({name: key.decode() for name, key in words.items()}, indent=1)
            with open(path, "x", opener=_private) as file:
                file.write(text + "\n")
    except OSError as error:
        raise ConfigError(f"cannot write keys to {folder}: {error.strerror}") from error
    return paths


def read_keys(path: str | os.PathLike[str]) -> Keys:
    """The keys in a file; ConfigError when it is none, or others may read it."""
    try:
        file = Path(path).expanduser()
        mode = file.stat().st_mode
        text = file.read_text(encoding="ascii")
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(f"cannot read keys from {path}: {reason}") from error
    if mode & 0o077:
        raise ConfigError(f"others may read {path}: chmod 600 {path}")
    try:
        found = json.loads(text)
        keys = Keys(*(found[name].encode() for name in ("public", "secret", "other")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} holds no keys") from error
    if any(len(key) != _KEY_LENGTH for key in (keys.public, keys.secret, keys.other)):
        raise ConfigError(f"{path} holds no keys")
    return keys


def _is_port(text: str) -> bool:
    return text == "*" or (text.isascii() and text.isdigit() and int(text) < 1 << 16)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name may mean any host


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
