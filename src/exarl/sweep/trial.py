"""Values of trainings, at their end and while they run, read from their run directories."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exarl.errors import ExarlError
from exarl.records.directory import RunDirectory, read_json
from exarl.records.metrics import INFO, finite, read_rows
from exarl.records.state import FINISHED, ended_as, read_summary

_LAST_WORDS = 4000
_METRICS = {
    "last_reward_mean": "last_reward_mean",
    "best_reward_mean": "best_reward_mean",
    "evaluation": "best_evaluation",
    "last_evaluation": "last_evaluation",
}


class NoValue(ExarlError):
    """A training that ended without a value of the metric."""


def summed_up(values: Sequence[float], objective: str) -> float:
    """The value of a setting; the interquartile mean omits a quarter of the values at each end."""
    ordered = np.sort(np.asarray(values, float))
    if objective == "mean":
        return float(ordered.mean())
    if objective == "median":
        return float(np.median(ordered))
    # Each value has a weight of 1 on [i, i + 1]; the middle half of [0, n] counts.
    count = len(ordered)
    edges = np.clip(np.arange(count + 1), count / 4, 3 * count / 4)
    return float(np.diff(edges) @ ordered / (count / 2))


def is_finished(run_dir: Path) -> bool:
    """Whether a training ended as configured, not by a signal or by divergence."""
    summary = read_summary(RunDirectory(run_dir))
    reason = summary.get("reason") if summary else None
    return bool(reason) and ended_as(str(reason)) == FINISHED


def value_of(run_dir: Path, metric: str) -> float:
    """The metric of a finished training; NoValue when it has none, or one that is not finite."""
    run = RunDirectory(run_dir)
    value: float | None
    if metric == "auc":
        value = mean_over_steps(read_rows(run.result))
    elif metric.startswith(INFO):
        value = _last_of(metric, read_rows(run.result))
    else:
        value = read_json(run.summary).get(_METRICS[metric])
    if value is None:
        hint = "; did an episode end?" if metric == "last_reward_mean" else ""
        hint = hint or "; shorten reward_window" * (metric == "best_reward_mean")
        raise NoValue(f"the training has no {metric}{hint}")
    if not math.isfinite(value):
        raise NoValue(f"{metric} is {value}")
    return float(value)


def _last_of(metric: str, rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The last value of a column; with ``:min`` its negative, since values are maximised."""
    column, _, way = metric.partition(":")
    values = (value for row in reversed(rows) if (value := finite(row, column)) is not None)
    value = next(values, None)
    return -value if value is not None and way == "min" else value


def mean_over_steps(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The area under the curve of mean returns per step; None without a mean return."""
    seen = [
        (row["timesteps_total"], row["episode_reward_mean"])
        for row in rows
        if row.get("episode_reward_mean") is not None
    ]
    if not seen:
        return None
    steps, rewards = np.array(seen, float).T
    spans = np.diff(steps)
    if not spans.sum():
        return float(rewards[-1])
    return float((rewards[1:] + rewards[:-1]) / 2 @ spans / spans.sum())


class Curve:
    """The mean returns of a running training; each call reads only the new rows."""

    def __init__(self, path: Path, total_steps: int, marks: int) -> None:
        self._path, self._at = path, 0
        self._due = [math.ceil(total_steps * (i + 1) / marks) for i in range(marks)]
        self._mark = 0

    def news(self) -> list[tuple[int, float]]:
        """(mark, mean return) for each mark reached since the last call; marks count from 1."""
        found: list[tuple[int, float]] = []
        for row in self._new_rows():
            steps, reward = row.get("timesteps_total"), row.get("episode_reward_mean")
            while (
                self._mark < len(self._due) and steps is not None and steps >= self._due[self._mark]
            ):
                self._mark += 1
                if reward is not None:
                    found.append((self._mark, float(reward)))
        return found

    def _new_rows(self) -> list[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._at:
                    self._at = 0  # the run was resumed: rows after its checkpoint were removed
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        with contextlib.suppress(ValueError):
            return [json.loads(line) for line in whole.splitlines()]
        return []


def last_words(output: Path, start: int = 0) -> str:
    """The last line that a program wrote after byte ``start``; preferably one of EXARL's messages."""
    try:
        with output.open("rb") as file:
            file.seek(max(start, file.seek(0, 2) - _LAST_WORDS))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    messages = [line for line in lines if line.startswith("exarl: ")]
    return (messages or lines or [""])[-1][:300]
