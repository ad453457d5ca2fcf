"""Ray's settings; clusters themselves are started by tests/faults/test_elastic.py."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from exarl.comm.cluster import (
    BEYOND,
    MODE,
    TOKENS,
    Cluster,
    Needs,
    Remote,
    guard,
    show_token,
    sweep_folders,
)
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


@pytest.mark.parametrize("mode", [0o640, 0o610, 0o604, 0o601, 0o600])
def test_no_one_else_may_do_anything_with_the_users_token(tmp_path: Path, mode: int) -> None:
    kept = tmp_path / ".ray" / "auth_token"
    kept.parent.mkdir()
    kept.touch()
    kept.chmod(mode)
    show_token({}, tmp_path)
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


# -- what Ray is told -----------------------------------------------------------------------------


class Ray:
    """Remembers how it was started, the environment at that time, and what objects were made with."""

    __file__ = "/nowhere/ray/__init__.py"

    def __init__(self) -> None:
        self.started: list[dict[str, Any]] = []
        self.environ: dict[str, str] = {}
        self.options: dict[str, Any] = {}

    def init(self, **options: Any) -> None:
        self.started.append(options)
        self.environ = dict(os.environ)

    def remote(self, **options: Any) -> Any:
        self.options = options
        return mock.MagicMock()

    def shutdown(self) -> None:
        pass


@pytest.fixture
def ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ray]:
    """Takes Ray's place, in an environment without settings for it."""
    made = Ray()
    monkeypatch.setattr("exarl.comm.cluster._ray", lambda: made)
    monkeypatch.setattr("exarl.comm.cluster.TEMPORARY", tmp_path)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with mock.patch.dict(os.environ, {"HOME": str(tmp_path)}, clear=True):
        yield made


def test_a_local_cluster_is_started_safe_and_reports_to_no_one(ray: Ray) -> None:
    with Cluster(None, cpus=3):
        pass
    (options,) = ray.started
    assert (options["address"], options["num_cpus"]) == ("local", 3)
    assert (ray.environ[MODE], ray.environ[BEYOND]) == ("token", "0")
    assert ray.environ[TOKENS[0]]
    assert ray.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_a_cluster_that_is_joined_gets_no_reports_either_unless_the_user_wants_them(
    ray: Ray,
) -> None:
    with Cluster("auto"):
        pass
    assert ray.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "1"
    with Cluster("auto"):
        pass
    assert ray.environ["RAY_USAGE_STATS_ENABLED"] == "1"


def test_no_local_cluster_is_started_by_ray_that_was_imported_without_its_settings(
    ray: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", ray)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="already imported"), Cluster(None):
        pass
    assert not ray.started


def test_an_object_is_not_made_again_and_gets_what_it_needs(ray: Ray) -> None:
    Remote(dict, Needs(cpus=2.0))
    assert ray.options["max_restarts"] == 0, "whoever made it decides what happens then"
    assert (ray.options["num_cpus"], ray.options["num_gpus"]) == (2, 0)
