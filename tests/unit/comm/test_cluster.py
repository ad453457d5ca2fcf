"""Ray's settings; clusters themselves are started by tests/faults/test_elastic.py."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from exarl.comm.cluster import BEYOND, MODE, TOKENS, guard, show_token, sweep_folders
from exarl.errors import ConfigError, Stopped


def test_a_local_cluster_has_a_token_and_stays_on_this_machine() -> None:
    environ = {MODE: "disabled"}
    guard(environ)
    assert environ[MODE] == "token" and environ[BEYOND] == "0"
    assert len(environ[TOKENS[0]]) == 64

    other: dict[str, str] = {}
    guard(other)
    assert other[TOKENS[0]] != environ[TOKENS[0]]


@pytest.mark.parametrize("name", TOKENS)
def test_a_token_of_the_users_own_is_kept(name: str) -> None:
    environ = {name: "mine"}
    guard(environ)
    assert environ == {name: "mine", MODE: "token", BEYOND: "0"}


def test_ray_that_was_imported_without_its_settings_is_not_used() -> None:
    with pytest.raises(ConfigError, match="RAY_AUTH_MODE=token"):
        guard({}, imported=True)
    guard({MODE: "token", BEYOND: "0"}, imported=True)


def test_joining_shows_the_users_token_and_hides_its_file(tmp_path: Path) -> None:
    environ: dict[str, str] = {BEYOND: "0"}
    show_token(environ, tmp_path)
    assert environ == {}

    kept = tmp_path / ".ray" / "auth_token"
    kept.parent.mkdir()
    kept.write_text("secret")
    kept.chmod(0o644)
    show_token(environ, tmp_path)
    assert environ == {MODE: "token"}
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_stop_has_the_exit_code_of_its_signal() -> None:
    assert Stopped(15).exit_code == 143
    assert "SIGTERM" in str(Stopped(15))


def test_folders_of_killed_programs_go_and_no_others(tmp_path: Path) -> None:
    for name in ("dead", "alive", "young", "unlocked"):
        folder = tmp_path / f"exarl-ray-{name}"
        (folder / "r").mkdir(parents=True)
        if name != "unlocked":
            (folder / "lock").touch()
        if name != "young":
            os.utime(folder, (0, 0))
    with (tmp_path / "exarl-ray-alive/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sweep_folders(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["exarl-ray-alive", "exarl-ray-unlocked", "exarl-ray-young"]
