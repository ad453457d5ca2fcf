"""The last words of a run: its summary, whether it came to its end or failed."""

from __future__ import annotations

import signal
import socket
import traceback
from collections.abc import Mapping
from typing import Any

from exarl.errors import ExarlError
from exarl.records.directory import RunDirectory, write_json
from exarl.records.follow import last_row
from exarl.records.lock import clear, leave_error, part_of
from exarl.records.metrics import finite
from exarl.records.state import FAILED, ended_as, read_summary
from exarl.types import FAILURES

_LONGEST = 500  # characters of an error


def write_summary(run: RunDirectory, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Write down how this part of a run ended, and return it; ``summary`` has at least a ``reason``."""
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
    """Write a summary of a run that could not end in order, as far as that is possible.

    ``known`` is what the learner can tell; without it, as on another rank, the last row has to do.
    The first error of a ``part`` counts: other ranks fail because of it. After a second stop signal,
    ``signum`` being the first, the run was stopped. A run that was not created leaves nothing behind.
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
    told = "interrupted before the last checkpoint" if stopped else describe(error)
    environment = getattr(error, "environment", None)
    summary = {
        **(known or _from_last_row(run)),
        "reason": signal.Signals(signum).name if stopped and signum is not None else FAILED,
        "error": told,
        "failure": {
            "rank": rank,
            "host": socket.gethostname(),
            "environment": environment,
            "kind": getattr(error, "kind", None) or ("raise" if environment is not None else None),
        },
    }
    try:
        write_summary(run, summary)
    except OSError:  # a disk that is full still has room where the lock stands
        leave_error(run, told)


def describe(error: BaseException | str) -> str:
    """An error in one line; also one whose own description fails."""
    if isinstance(error, str | ExarlError):
        text = str(error).strip()
        if text.startswith("Traceback"):  # as another process told it
            text = text.splitlines()[-1]
    else:
        (text, *_) = traceback.TracebackException(type(error), error, None).format_exception_only()
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _from_last_row(run: RunDirectory) -> dict[str, Any]:
    """What the files tell of a run whose learner cannot."""
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
        "last_reward_mean": finite(row, "episode_reward_mean"),
        "env_restarts": count("env_restarts"),
        "env_failures": {kind: count(f"env_{kind}") for kind in FAILURES},
    }
