"""Compiled programs that outlive a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from exarl.agents import cache

LEARN = """
import json, sys
from collections import Counter
import jax
from support.learning import discrete_spec, make_agent, random_block
seen = Counter()
jax.monitoring.register_event_listener(lambda event, **_: seen.update([event.split("/")[-1]]))
spec = discrete_spec()
agent = make_agent(spec, learner=True, learning_starts=0, batch_size=4)
agent.train(random_block(spec, 0))
print(json.dumps({name: seen[name] for name in ("cache_hits", "cache_misses")}))
"""


class Config:
    """JAX's configuration, as far as the cache goes."""

    def __init__(self, folder: str | None = None, enabled: bool = True) -> None:
        self.jax_compilation_cache_dir = folder
        self.jax_enable_compilation_cache = enabled
        self.changed: dict[str, Any] = {}

    def update(self, name: str, value: Any) -> None:
        self.changed[name] = value


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("NPROC", "XDG_CACHE_HOME", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def learn(home: Path) -> dict[str, int]:
    """Let a process of its own train once; how often it found what it wanted, and how often not."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("JAX_", "XDG_"))}
    done = subprocess.run(
        [sys.executable, "-c", LEARN],
        env={**kept, "HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, int] = json.loads(done.stdout)
    return found


def programs(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_the_next_process_finds_what_was_compiled(home: Path) -> None:
    first = learn(home)
    assert first["cache_hits"] == 0
    assert first["cache_misses"] > 5, "small programs are kept too"
    folder = home / ".cache/exarl/xla"
    assert len(programs(home)) == len(programs(folder)) == first["cache_misses"]
    assert learn(home) == {"cache_hits": first["cache_misses"], "cache_misses": 0}
    for path in programs(folder):  # as a process leaves them that is killed while it writes
        os.truncate(path, path.stat().st_size // 2)
    assert learn(home)["cache_hits"] == 0, "what is damaged is compiled again, without a word"


def test_the_folder_is_the_users(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.cache_folder() == home / ".cache/exarl/xla"
    monkeypatch.setenv(
        "XDG_CACHE_HOME", "here"
    )  # a relative one counts for nothing, says the standard
    assert cache.cache_folder() == home / ".cache/exarl/xla"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "kept"))
    config = Config()
    cache.keep_compiled(config)
    assert config.changed["jax_compilation_cache_dir"] == str(home / "kept/exarl/xla")
    assert config.changed["jax_persistent_cache_min_compile_time_secs"] == 0


def test_programs_for_other_numbers_of_threads_are_kept_apart(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = set()
    for threads in ("1", "16"):
        monkeypatch.setenv("NPROC", threads)
        folders.add(cache.cache_folder())
    assert len(folders) == 2
    assert {folder.parent for folder in folders} == {home / ".cache/exarl/xla"}


def test_what_the_user_told_jax_goes_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for config in (Config("elsewhere"), Config(""), Config(enabled=False)):
        cache.keep_compiled(config)
        assert not config.changed
    assert not list(home.iterdir())
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "2")
    config = Config()
    cache.keep_compiled(config)
    assert config.changed.keys() == {"jax_compilation_cache_dir"}


def test_a_folder_that_cannot_be_is_no_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config()
    (home / ".cache").write_text("in the way")
    cache.keep_compiled(config)
    (home / ".cache").unlink()
    monkeypatch.setattr(os, "access", lambda *_: False)
    cache.keep_compiled(config)
    monkeypatch.setattr(Path, "home", lambda: Path("~nobody-at-all").expanduser())
    cache.keep_compiled(config)
    assert not config.changed


def test_a_folder_that_others_can_write_to_is_not_used(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder, config = home / ".cache/exarl/xla", Config()
    folder.mkdir(parents=True)

    def refused(*parts: str) -> None:
        caplog.clear()
        cache.keep_compiled(config)
        assert not config.changed
        (told,) = (record.getMessage() for record in caplog.records)
        for part in ("are not kept", *parts):
            assert part in told

    folder.chmod(0o1777)
    refused("everyone", str(folder))
    folder.chmod(0o700)
    folder.parent.chmod(0o777)  # anyone could put another xla there
    refused("everyone", str(folder.parent))
    folder.parent.chmod(0o775)
    monkeypatch.setattr(cache, "_alone_in", lambda _: False)
    refused("group", str(folder.parent))
    folder.parent.chmod(0o1777)  # sticky: not with ours in the way
    cache.keep_compiled(config)
    assert config.changed["jax_compilation_cache_dir"] == str(folder)

    config.changed.clear()
    if os.geteuid() == 0:
        os.chown(folder, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    refused("another user")


def test_the_users_own_choice_is_not_used_either_if_everyone_can_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for mode, changed in ((0o1777, {"jax_compilation_cache_dir": None}), (0o775, {})):
        tmp_path.chmod(mode)
        config = Config(str(tmp_path))
        cache.keep_compiled(config)
        assert config.changed == changed
        assert bool(changed) == ("everyone" in caplog.text)
        caplog.clear()


def test_the_switches_are_those_that_jax_has() -> None:
    code = "from exarl.agents.compiled import jax; print(jax.config.jax_compilation_cache_dir)"
    kept = {n: v for n, v in os.environ.items() if not n.startswith("JAX_")}
    environ = {**kept, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    assert subprocess.check_output([sys.executable, "-c", code], env=environ) == b"None\n"


def test_the_older_half_goes_when_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MOST_KEPT", 10)
    (tmp_path / "notes").write_text("not a program")
    for number in range(10):
        path = tmp_path / f"jit_{number}-cache"
        path.write_bytes(b"x")
        os.utime(path, (0, 1000 - number))
    cache.prune(tmp_path)
    assert len(programs(tmp_path)) == 11
    (tmp_path / "jit_10-cache").write_bytes(b"x")
    cache.prune(tmp_path)
    left = sorted(path.name for path in programs(tmp_path))
    assert left == sorted([*(f"jit_{n}-cache" for n in (0, 1, 2, 3, 4, 10)), "notes"])
