"""A batch of settings as one compiled program: a population of workflow fused, in a child process."""

from __future__ import annotations

import contextlib
import csv
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from exarl.envs import child
from exarl.errors import ConfigError, ExarlError
from exarl.records.directory import RunDirectory, reason, writing
from exarl.records.lock import PATIENT
from exarl.records.replacing import replacing
from exarl.records.signals import heard, name_of
from exarl.sweep.executors import exarl_command
from exarl.sweep.trial import last_words

GRACE_S = 60.0
"""Seconds that a population has to write its checkpoint when it must end."""


class PopulationStopped(ExarlError):
    """Signal ``number`` stopped the population; the same run directory continues it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped early by {name_of(number)}")
        self.exit_code = 128 + number


def run_population(
    words: Sequence[str],
    points: Sequence[Mapping[str, float]],
    seeds: Sequence[int],
    run_dir: Path,
) -> list[list[float]]:
    """Train every point with every seed at once; return the mean returns of their last episodes.

    ``words`` are the arguments of ``exarl train`` that all share (agent, env, total_steps,
    ``--workflow fused`` ...). The result is ``[point][seed]``: up to rounding, the
    ``last_reward_mean`` of a separate run with that seed and these parameters; NaN when the agent
    diverged or finished no episode. A run in ``run_dir`` is continued or, if it has ended, read.

    ConfigError when this cannot be trained, ExarlError when the training failed, each with its last
    line; PopulationStopped after a stop signal, which the main thread passes on to the training.
    """
    table = [{**point, "seed": seed} for point in points for seed in seeds]
    if not table or any(point.keys() != points[0].keys() for point in points):
        raise ConfigError("a population needs points with the same parameters, and seeds")
    run = RunDirectory(run_dir.absolute())
    chosen, output = run.path / "points.csv", run.logs / "train.log"
    with writing(run.path):
        run.logs.mkdir(parents=True, exist_ok=True)
        _write(chosen, table)
        output.touch()
        already = output.stat().st_size
    place = ["--sweep", f"@{chosen}", "--run_dir", str(run.path)]
    command = exarl_command(["train", *words, *place])
    code, received = _run(command, output)
    if received and code:
        raise PopulationStopped(received[0])
    if code:
        kind = ConfigError if code == ConfigError.exit_code else ExarlError
        words = last_words(output, already).removeprefix("exarl: ")
        raise kind(words or f"exarl train {child.how_it_ended(code)}")
    rewards = _rewards(run.population, len(table))
    width = len(seeds)
    return [rewards[start : start + width] for start in range(0, len(table), width)]


def _write(path: Path, table: Sequence[Mapping[str, float]]) -> None:
    """Write the table with all digits of every number, completely or not at all."""
    with replacing(path) as aside, aside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table[0])
        writer.writerows([[row[name] for name in table[0]] for row in table])


def _run(command: Sequence[str], output: Path) -> tuple[int, list[int]]:
    """Run a child that ends with this thread; its exit code and the signals passed on to it."""
    process = child.start(child.tied(command), output, environ=PATIENT)
    with _passed_on(process) as received:
        try:
            process.wait()
        finally:
            code = child.end(process, 0, GRACE_S)
    return code, received


@contextlib.contextmanager
def _passed_on(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Pass stop signals on to the child and to the previous handlers; yields those received."""
    received: list[int] = []
    before: dict[int, object] = {}

    def pass_on(number: int, frame: object) -> None:
        received.append(number)
        process.send_signal(number)
        listener = before[number]
        if callable(listener) and listener is not signal.default_int_handler:
            listener(number, frame)

    if threading.current_thread() is threading.main_thread():
        before.update({number: signal.signal(number, pass_on) for number in heard()})
    try:
        yield received
    finally:
        for number, listener in before.items():
            signal.signal(number, listener)  # type: ignore[arg-type]


def _rewards(path: Path, count: int) -> list[float]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            found = [float(row["reward_mean"]) for row in csv.DictReader(file)]
    except (OSError, KeyError, ValueError) as error:
        raise ExarlError(f"cannot read {path}: {reason(error)}") from error
    if len(found) != count:
        raise ExarlError(f"{path} has {len(found)} rows, not one for each of {count} agents")
    return found
