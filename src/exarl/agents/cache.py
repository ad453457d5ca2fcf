"""Compiled programs in the user's cache folder, so that the next run need not compile them again."""

from __future__ import annotations

import grp
import logging
import os
import pwd
import stat
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

MOST_KEPT = 1000
"""Programs; the older half goes when there are more. One takes about 100 kB."""


def cache_folder() -> Path:
    """``exarl/xla`` in the user's cache folder; RuntimeError where there is none.

    Within it each number of XLA's threads (NPROC) has a folder: XLA divides a program's work by that
    number when it compiles, and JAX does not tell such programs apart.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    folder = (base if base.is_absolute() else Path.home() / ".cache") / "exarl" / "xla"
    threads = os.environ.get("NPROC", "")
    return folder / f"threads-{threads}" if threads.isdigit() else folder


def keep_compiled(config: Any) -> None:
    """Let JAX, whose ``config`` this is, keep what it compiles and use what it has kept.

    JAX's own settings go first: JAX_COMPILATION_CACHE_DIR names another folder, and with
    JAX_ENABLE_COMPILATION_CACHE=false there is none. Where the folder cannot be written there is none
    either, and none where others can write, since what lies there is executed. Entries are found by
    program, version and processor, and carry a checksum: processes that write at once do not disturb
    one another, and whatever is damaged is compiled again.
    """
    if not config.jax_enable_compilation_cache:
        return
    given = config.jax_compilation_cache_dir
    if given is not None:
        with suppress(OSError):
            if given and Path(given).stat().st_mode & stat.S_IWOTH:
                _refuse(given, f"everyone can write to {given}")
                config.update("jax_compilation_cache_dir", None)
        return
    try:
        folder = cache_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (why := exposed(folder)) is not None:
            _refuse(folder, why)
            return
        prune(folder)
    except (OSError, RuntimeError):
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        return
    config.update("jax_compilation_cache_dir", str(folder))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        # A learner has some twenty small programs beside the update, the same for every run.
        config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")


def _refuse(folder: Path | str, why: str) -> None:
    log.warning("compiled programs are not kept in %s: %s", folder, why)


def exposed(folder: Path) -> str | None:
    """How another user than root could put files into ``folder``, in words; None: not at all.

    Above it, a folder to which others can write is harmless if it is sticky, as /tmp is.
    """
    real = folder.resolve()
    for place in dict.fromkeys((real, *real.parents, folder, *folder.parents)):
        about = place.stat()
        if about.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to another user"
        if place not in (folder, real) and about.st_mode & stat.S_ISVTX:
            continue
        if about.st_mode & stat.S_IWOTH:
            return f"everyone can write to {place}"
        if about.st_mode & stat.S_IWGRP and not _alone_in(about.st_gid):
            return f"its group can write to {place}"
    return None


def _alone_in(group: int) -> bool:
    """Whether a group is the user's own, which many systems give to every user."""
    try:
        return grp.getgrgid(group).gr_name == pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False


def prune(folder: Path) -> None:
    """Remove the older half of the programs when they have become too many."""
    kept = [path for path in folder.iterdir() if path.name.endswith("-cache")]
    if len(kept) <= MOST_KEPT:
        return
    ages: dict[Path, float] = {}
    for path in kept:
        with suppress(OSError):  # another process tidies up too
            ages[path] = path.stat().st_mtime
    for path in sorted(ages, key=lambda path: ages[path])[: len(ages) // 2]:
        with suppress(OSError):
            path.unlink()
