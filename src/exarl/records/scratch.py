"""Temporary folders that name their process, so that those of killed processes can be removed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from exarl.records.alive import is_alive, is_here, own_card
from exarl.records.directory import read_regular

_OWNER = ".owner"


def scratch_folder(prefix: str, parent: str | None = None) -> Path:
    """A new folder that only this user can read, in ``parent`` or in the system's temporary folder.

    The caller removes it. Folders of killed processes of this machine are removed first.
    """
    sweep(Path(parent or tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    sign(folder)
    return folder


@contextlib.contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """A ``scratch_folder`` that is removed after the body."""
    folder = scratch_folder(prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sign(folder: Path) -> None:
    """Mark ``folder``, whose name begins with ``exarl-``, as one of this process."""
    with contextlib.suppress(OSError):
        (folder / _OWNER).write_text(json.dumps(own_card()), encoding="utf-8")


def sweep(parent: Path) -> None:
    """Remove the signed folders in ``parent`` whose processes, of this user, have ended."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if not entry.name.startswith("exarl-") or not entry.is_dir(follow_symlinks=False):
                continue
            if entry.stat(follow_symlinks=False).st_uid == os.getuid() and _is_left(entry.path):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_left(folder: str) -> bool:
    """Whether the process that signed the folder ran on this machine and has ended."""
    owner = Path(folder, _OWNER)
    try:
        card = json.loads(read_regular(owner))
        return is_here(card) and not is_alive(card, owner, time.time())
    except (OSError, ValueError, RecursionError, AttributeError):
        return False
