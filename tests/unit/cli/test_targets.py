"""Output files are checked before any work is done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exarl.cli.targets import check_target
from exarl.errors import ConfigError


def test_a_new_file_and_one_to_be_replaced_are_accepted(tmp_path: Path) -> None:
    check_target(tmp_path / "new.npz", replace=False)
    (tmp_path / "old.npz").write_text("")
    check_target(tmp_path / "old.npz")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (".", "it is a folder"),
        ("nowhere/a.npz", "there is no folder"),
        ("file/a.npz", "there is no folder"),
        ("a\0b", "cannot write"),
        ("x" * 5000, "cannot write"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=message):
        check_target(tmp_path / name)


def test_an_existing_file_is_kept_unless_it_may_be_replaced(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("nowhere")  # a link counts even if its target is missing
    with pytest.raises(ConfigError, match="already exists; --force replaces it"):
        check_target(link, replace=False)


def test_a_folder_without_write_permission_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ConfigError, match="is not writable"):
        check_target(tmp_path / "a.npz")
