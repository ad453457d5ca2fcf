"""Temporary folders of killed processes are removed by the next; those of others are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from exarl.records.alive import own_card
from exarl.records.scratch import scratch, scratch_folder


def left(parent: Path, name: str, owner: object) -> Path:
    folder = parent / name
    folder.mkdir()
    (folder / ".owner").write_text(json.dumps(owner))
    return folder


def test_what_the_killed_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code = "from exarl.records.scratch import scratch_folder; import os; scratch_folder('exarl-');"
    subprocess.run([sys.executable, "-c", f"{code} os.kill(os.getpid(), 9)"], check=False)
    (dead,) = tmp_path.iterdir()
    elsewhere = left(tmp_path, "exarl-away", {**own_card(), "machine": "another", "pid": 1})
    unsigned = tmp_path / "exarl-of-another-program"
    unsigned.mkdir()
    odd = left(tmp_path, "exarl-odd", ["not a card"])
    mine = scratch_folder("exarl-", str(tmp_path))
    assert set(tmp_path.iterdir()) == {elsewhere, unsigned, odd, mine}
    assert dead != mine
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch("exarl-") as short:
        assert short.is_dir() and mine.is_dir()
    assert not short.exists()


def test_a_folder_is_private(tmp_path: Path) -> None:
    folder = scratch_folder("exarl-", str(tmp_path))
    assert folder.stat().st_mode & 0o077 == 0
    assert folder.stat().st_uid == os.getuid()
