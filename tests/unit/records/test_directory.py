"""The run directory: its paths, how it is made and found, and what is refused in one line."""

from __future__ import annotations

import errno
import json
import os
import re
import time
from pathlib import Path

import pytest

from exarl.errors import ConfigError, StorageError
from exarl.records.directory import (
    RunDirectory,
    check_place,
    expand,
    in_a_path,
    made_folder,
    new_run_directory,
    open_regular,
    open_run,
    read_json,
    read_regular,
    stored_ranks,
    sweep_left_over,
    write_json,
    writing,
)


def test_paths_are_known_by_name(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert run.config == tmp_path / "config.json"
    assert run.rank_file("rank", 3, "log") == tmp_path / "logs" / "rank_0003.log"
    with pytest.raises(AttributeError):
        _ = run.nothing_like_that


def test_a_run_that_was_created_is_found(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "a" / "b")
    assert not run.exists()
    with pytest.raises(ConfigError, match="no run directory"):
        open_run(run.path)
    run.path.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"config\.json is missing"):
        open_run(run.path)
    run.create({"x": 1}, {"layout": {"world": 4}})
    assert open_run(run.path).exists()
    assert read_json(run.config) == {"x": 1}
    assert stored_ranks(run) == 4
    assert run.checkpoints.is_dir()
    assert run.logs.is_dir()


@pytest.mark.parametrize("manifest", [{}, {"layout": {}}, {"layout": {"world": "x"}}])
def test_a_manifest_without_ranks_is_damaged(tmp_path: Path, manifest: object) -> None:
    run = RunDirectory(tmp_path)
    write_json(run.manifest, manifest)
    with pytest.raises(ConfigError, match="damaged"):
        stored_ranks(run)


@pytest.mark.parametrize(("world", "good"), [(1, True), (0, False), (-1, False)])
def test_a_run_has_at_least_one_rank(tmp_path: Path, world: int, good: bool) -> None:
    run = RunDirectory(tmp_path)
    write_json(run.manifest, {"layout": {"world": world}})
    if good:
        assert stored_ranks(run) == world
    else:
        with pytest.raises(ConfigError, match="damaged"):
            stored_ranks(run)


def test_new_names_are_unique_and_safe() -> None:
    one, other = (new_run_directory("runs", "DQN-v0", "my:Env/x", "sync") for _ in range(2))
    assert one != other
    assert one.path.parent == Path("runs")
    assert re.fullmatch(r"DQN-v0_my-Env-x_sync_\d{8}-\d{6}_[0-9a-f]{6}", one.path.name)
    assert in_a_path("a/b:c") == "a-b-c"


def test_a_home_that_does_not_exist_is_named() -> None:
    assert expand("~/x") == Path.home() / "x"
    with pytest.raises(ConfigError, match="home folder"):
        expand("~no_such_user_here/x")


def test_a_place_is_checked_and_not_touched(tmp_path: Path) -> None:
    check_place(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("x" * 300)):
        with pytest.raises(ConfigError, match="cannot write"):
            check_place(place)


def test_what_was_made_for_nothing_is_removed_again(tmp_path: Path) -> None:
    folder, log = tmp_path / "a" / "b", tmp_path / "log.txt"
    with pytest.raises(KeyError), made_folder(folder, log):
        log.write_text("")
        raise KeyError
    assert not list(tmp_path.iterdir())
    with pytest.raises(KeyError), made_folder(folder, log):
        log.write_text("something")
        (folder / "kept").write_text("")
        raise KeyError
    assert log.exists()
    assert (folder / "kept").exists()
    with made_folder(tmp_path / "c"):
        pass
    assert (tmp_path / "c").is_dir()
    with pytest.raises(StorageError), made_folder(log / "below"):
        pass


def test_json_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": [1, 2]})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == read_json(path) == {"a": [1, 2]}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"], "nothing is left beside it"


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000])
def test_json_that_is_damaged_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ConfigError, match="damaged"):
        read_json(tmp_path / "x.json")
    with pytest.raises(ConfigError, match="cannot read"):
        read_json(tmp_path / "none.json")


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError):
            open_regular(path)
    (tmp_path / "file").write_bytes(b"abc")
    assert read_regular(tmp_path / "file") == b"abc"


def test_left_overs_go_but_for_those_that_wait(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.create({}, {})
    waiting, old = tmp_path / ".lock.json.1.tmp", tmp_path / ".lock.json.2.tmp"
    others = [tmp_path / ".config.json.7.tmp", run.logs / ".x.tmp", run.checkpoints / ".5.tmp"]
    for path in (waiting, old, *others[:2]):
        path.write_text("")
    others[2].mkdir()
    (others[2] / "file").write_text("")
    long_ago = time.time() - 700
    os.utime(old, (long_ago, long_ago))
    kept = run.checkpoints / "000000000005"
    kept.mkdir()
    sweep_left_over(run)
    assert waiting.exists()
    assert kept.exists()
    assert not any(path.exists() for path in (old, *others))


def test_a_full_disk_has_its_advice(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="make room, then: exarl resume"), writing(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    elsewhere = pytest.raises(StorageError, match="cannot write to elsewhere: no")
    with elsewhere as refused, writing(tmp_path):
        raise OSError(errno.EIO, "no", "elsewhere")
    assert "make room" not in str(refused.value)
