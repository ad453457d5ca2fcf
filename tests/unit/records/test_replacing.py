"""Files and folders are replaced as a whole, or stay as they were."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exarl.records.replacing import replacing, sync_to_disk


@pytest.mark.parametrize("sync", [False, True])
def test_a_file_is_replaced_after_the_body(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "table.csv"
    path.write_text("old")
    with replacing(path, sync=sync) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_changes_when_the_body_fails(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "table.csv"
    path.write_text("old")
    with pytest.raises(error), replacing(path) as aside:
        aside.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_replaces_one_with_files(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for content in ("old", "new"):
        with replacing(path, sync=True) as aside:
            aside.mkdir()
            (aside / content).touch()
    assert [file.name for file in path.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_fails_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with pytest.raises(OSError, match="full"), replacing(path) as aside:
        aside.mkdir()
        (aside / "half").touch()
        raise OSError("full")
    assert not list(tmp_path.iterdir())


def test_the_longest_name_has_a_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 127)  # 254 bytes of the 255 that a name may have
    with replacing(path) as aside:
        aside.touch()
    assert path.exists()


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_brought_to_disk_is_open_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    handles: list[int] = []

    def fsync(handle: int) -> None:
        os.fstat(handle)
        handles.append(handle)
        if fails:
            raise OSError("full")

    monkeypatch.setattr(os, "fsync", fsync)
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path):
        if fails:
            with pytest.raises(OSError, match="full"):
                sync_to_disk(path)
        else:
            sync_to_disk(path)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(handles[-1])
    assert len(handles) == 2
