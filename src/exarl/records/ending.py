"""The end of a run: its summary, whether it finished or failed."""

from __future__ import annotations

import signal
import socket
import traceback
from collections.abc import Mapping
from typing import Any

from exarl.errors import ExarlError
from exarl.records.directory import RunDirectory, write_json
from exarl.records.follow import last_row
from exarl.records.lock import clear, part_of, store_error
from exarl.records.metrics import COLUMNS, FROM_BLOCKS, finite
from exarl.records.state import FAILED, ended_as, read_summary
from exarl.types import FAILURES

_LONGEST = 500  # characters of an error


def write_summary(run: RunDirectory, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Write how this part of a run ended, and return it; ``summary`` has at least a ``reason``."""
    whole = {"state": "", "error": None, **summary, "part": part_of(run)}
    whole["state"] = ended_as(str(summary["reason"]))
    write_json(run.summary, whole)
    return whole


def write_failure(
    run: RunDirectory,
    error: BaseException | str,
    known: Mapping[str, Any] | None = None,
    *,
    part: str | None = None,
    rank: int = 0,
    signum: int | None = None,
) -> None:
    """Write the summary of a run that failed, as far as that is possible.

    ``known`` is the learner's summary; without it, as on another rank, the last row is used. The first
    error of a ``part`` counts: other ranks fail because of it. A run that a second stop signal
    interrupted was stopped by the first, ``signum``. Nothing is written for a run that was not created.
    """
    present = part_of(run)
    if part is not None and present not in (None, part):
        return  # another process has taken the run over
    if not run.exists():
        clear(run)
        return
    before = read_summary(run)
    if before is not None and present is not None and before.get("part") == present:
        if before.get("reason") == FAILED:
            return
        known = known or before
    stopped = signum is not None and isinstance(error, KeyboardInterrupt)
    text = "interrupted before the last checkpoint" if stopped else describe(error)
    environment = getattr(error, "environment", None)
    summary = {
        **(known or _from_last_row(run)),
        "reason": signal.Signals(signum).name if stopped and signum is not None else FAILED,
        "error": text,
        "failure": {
            "rank": rank,
            "host": socket.gethostname(),
            "environment": environment,
            "kind": getattr(error, "kind", None) or ("raise" if environment is not None else None),
        },
    }
    try:
        write_summary(run, summary)
    except OSError:  # on a full disk, the lock's own place can still be written
        store_error(run, text)


def describe(error: BaseException | str) -> str:
    """An error in one line, even if its own ``__str__`` raises."""
    if isinstance(error, str | ExarlError):
        text = str(error).strip()
        if text.startswith("Traceback"):  # as another process reported it
            text = text.splitlines()[-1]
    else:
        (text, *_) = traceback.TracebackException(type(error), error, None).format_exception_only()
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _from_last_row(run: RunDirectory) -> dict[str, Any]:
    """The summary of a run whose learner cannot give one."""
    row = last_row(run.result)

    def count(key: str) -> int:
        return int(finite(row, key) or 0)

    seconds = finite(row, "time_total_s") or 0.0
    totals = ("timesteps_total", "episodes_total", "updates_total", "training_iteration")
    return {
        **{key: count(key) for key in totals},
        "wall_s": seconds,
        "steps_per_s": round(count("timesteps_total") / seconds, 1) if seconds else 0.0,
        "updates_per_s": round(count("updates_total") / seconds, 1) if seconds else 0.0,
        "best_reward_mean": None,
        "best_evaluation": None,
        "last_evaluation": None,
        "last_reward_mean": finite(row, "episode_reward_mean"),
        **{column: count(column) for column in FROM_BLOCKS},
        **{column: finite(row, column) or 0.0 for column in COLUMNS if column.startswith("core_")},
        "env_failures": {kind: count(f"env_{kind}") for kind in FAILURES},
    }
