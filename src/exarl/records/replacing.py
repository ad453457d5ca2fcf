"""Write aside and rename: a file or folder is replaced as a whole, or stays as it was."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_LONGEST = 48  # characters of a name that its temporary name repeats


@contextlib.contextmanager
def replacing(path: Path, *, sync: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``, which replaces ``path`` after the body.

    The body creates a file there, or a folder of files. If it raises, the temporary one is removed and
    ``path`` stays as it was. With ``sync``, everything is on disk before it gets its name: the new
    content survives a power failure, or the old one does.
    """
    aside = path.with_name(f".{path.name[:_LONGEST]}.{os.getpid()}.tmp")
    try:
        yield aside
        folder = aside.is_dir()
        if sync:
            for part in (*aside.iterdir(), aside) if folder else (aside,):
                sync_to_disk(part)
        if folder and path.exists():  # a folder replaces no other that has files in it
            os.replace(path, path.with_name(f".{path.name}.old.tmp"))
        os.replace(aside, path)
    except BaseException:
        remove(aside)
        raise
    if folder:
        remove(path.with_name(f".{path.name}.old.tmp"))


def remove(path: Path) -> None:
    """Remove a file or a folder with all it holds; one that is absent or refuses is left alone."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def sync_to_disk(path: Path) -> None:
    """Return when the disk has the content of a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
