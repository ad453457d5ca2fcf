"""The key of a run whose simulations join it: private, long enough, the same after a restart."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from exarl.comm.join_key import VARIABLE, key_of, open_key, read_key
from exarl.errors import ConfigError


def test_a_new_key_is_private_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "join.key"
    key, in_file = open_key({}, path)
    assert in_file and len(key) == 64 and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert open_key({}, path) == (key, True) and read_key(path) == key
    assert key_of({}, path) == key


def test_a_key_in_the_environment_comes_first_and_is_not_written(tmp_path: Path) -> None:
    environ = {VARIABLE: "k" * 20}
    assert open_key(environ, tmp_path / "join.key") == (b"k" * 20, False)
    assert not (tmp_path / "join.key").exists()
    assert key_of(environ, None) == b"k" * 20


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "join.key"
    with pytest.raises(ConfigError, match="cannot read the key"):
        read_key(path)
    path.write_text("k" * 40)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_key(path)
    path.chmod(0o600)
    path.write_text("short")
    with pytest.raises(ConfigError, match="too short"):
        read_key(path)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(ConfigError, match="too short"):
        read_key(path)
    with pytest.raises(ConfigError, match="too short"):
        key_of({VARIABLE: "short"}, None)
    with pytest.raises(ConfigError, match="--key-file"):
        key_of({}, None)
