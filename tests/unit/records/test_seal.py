"""The user's key and seals made with it."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from exarl.records.seal import has_key, is_sealed, make_seal

FACTS = {"env": {"command": "./sim", "n": 3}, "learner": {"seed": 1}}


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home / ".exarl" / "key"


def sealed(place: Path) -> str:
    seal = make_seal(place, FACTS)
    assert seal is not None
    return seal


def test_a_seal_holds_for_these_facts_at_this_place(key: Path, tmp_path: Path) -> None:
    seal = sealed(tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path)
    assert is_sealed(tmp_path / "run", dict(reversed(FACTS.items())), seal)
    assert is_sealed(tmp_path / "link" / "run", FACTS, seal), "the same place by another name"
    assert not is_sealed(tmp_path / "copy", FACTS, seal)
    assert not is_sealed(tmp_path / "run", {**FACTS, "env": {"command": "./evil", "n": 3}}, seal)
    for other in (None, 1, "", "é", seal[:-1], [seal]):
        assert not is_sealed(tmp_path / "run", FACTS, other)


def test_the_key_is_the_users_alone(key: Path, tmp_path: Path) -> None:
    assert not has_key()
    seal = sealed(tmp_path)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert [path.name for path in key.parent.iterdir()] == ["key"]
    key.chmod(0o644)  # others may have read it
    assert not has_key() and not is_sealed(tmp_path, FACTS, seal)
    assert make_seal(tmp_path, FACTS) is None
    key.unlink()
    assert sealed(tmp_path) != seal, "another key, another seal"


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "short"])
def test_what_is_no_key_is_not_used(key: Path, tmp_path: Path, kind: str) -> None:
    key.parent.mkdir()
    if kind == "link":
        (tmp_path / "theirs").write_bytes(bytes(32))
        key.symlink_to(tmp_path / "theirs")
    elif kind == "fifo":
        os.mkfifo(key, 0o600)
    elif kind == "folder":
        key.mkdir()
    else:
        key.write_bytes(b"short")
        key.chmod(0o600)
    assert make_seal(tmp_path, FACTS) is None


def test_many_at_once_agree_on_one_key(key: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        seals = set(pool.map(lambda _: make_seal(tmp_path, FACTS), range(64)))
    assert len(seals) == 1 and None not in seals


def test_without_a_home_there_is_no_seal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "not there"))
    assert make_seal(tmp_path, FACTS) is None
    assert not (tmp_path / "not there").exists()
