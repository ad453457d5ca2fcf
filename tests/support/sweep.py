"""Studies without processes: trainings that a function stands for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from exarl.config import parse_flags
from exarl.sweep.executors import Job
from exarl.sweep.manager import Manager
from exarl.sweep.owner import Owner
from exarl.sweep.spec import StudyConfig, SweepOptions, describe
from exarl.sweep.study import SettingRow, Study, StudyFolder

FLAGS = {
    "agent": "PPO-v0",
    "total_steps": "1000",
    "learning_rate": "1e-4:1e-2:log",
    "gamma": "0.9,0.99",
}

Outcome = Callable[[Mapping[str, str]], float | str]
"""Parameters of a training -> its mean return, or the error it ends with."""


def config(flags: Mapping[str, str] = FLAGS, **options: Any) -> StudyConfig:
    return describe(SweepOptions(**{"seeds": 1, "trials": 4, "sampler": "random"} | options), flags)


class Quiet:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def update(self, rows: list[SettingRow]) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)


class Fake:
    """An executor whose trainings are over after a number of polls, some sooner than others."""

    def __init__(
        self, outcome: Outcome, slots: int = 2, patience: Callable[[int], int] = lambda n: 2
    ):
        self.slots, self.outcome, self.patience = slots, outcome, patience
        self.started: list[dict[str, str]] = []
        self.most = self.under_way = 0

    def start(self, job: Job) -> FakeHandle:
        given = parse_flags(list(job.words)[1:])
        self.started.append(given)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        return FakeHandle(self, job, given, self.patience(len(self.started)))

    def close(self) -> None:
        pass


class FakeHandle:
    def __init__(self, executor: Fake, job: Job, given: dict[str, str], left: int) -> None:
        self.executor, self.job, self.given, self.left = executor, job, given, left
        self.place = Path(given["run_dir"])
        self.place.mkdir(parents=True, exist_ok=True)
        self.code: int | None = None
        found = executor.outcome(given)
        if isinstance(found, float):
            write_curve(self.place, found, int(given["total_steps"]))

    def poll(self) -> int | None:
        self.left -= 1
        if self.code is None and self.left <= 0:
            found = self.executor.outcome(self.given)
            self.executor.under_way -= 1
            self.code = 143 if found == "stopped" else 1 if isinstance(found, str) else 0
            if isinstance(found, str):
                self.job.output.write_text(f"starting\nexarl: {found}\n")
            else:
                write_summary(self.place, found)
        return self.code

    def terminate(self) -> None:
        if self.code is None:
            self.executor.under_way -= 1
            self.code = 143
            write_summary(self.place, 0.0, "SIGTERM")

    kill = terminate


def write_curve(place: Path, value: float, total: int) -> None:
    steps = [total * i // 10 for i in range(1, 11)]
    rows = [{"timesteps_total": s, "episode_reward_mean": value * s / total} for s in steps]
    (place / "result.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_summary(place: Path, value: float | None, reason: str = "total_steps") -> None:
    found = {"reason": reason, "last_reward_mean": value, "best_reward_mean": value}
    (place / "summary.json").write_text(json.dumps(found))


def work(path: Path, study: StudyConfig, executor: Any, **options: Any) -> list[SettingRow]:
    """Run a study to its end; its settings."""
    folder = StudyFolder(path)
    with Owner(folder.workers) as owner:
        opened = Study(folder, study, owner)
        Manager(opened, executor, Quiet(), **options).run()
        return opened.rows()


def quadratic(given: Mapping[str, str]) -> float:
    """Best at learning rate 1e-3 and gamma 0.99; a little luck by the seed."""
    import math

    away = math.log10(float(given["learning_rate"])) + 3
    return 100 - 50 * away**2 - 20 * (given["gamma"] == "0.9") + 0.1 * (int(given["seed"]) % 3)
