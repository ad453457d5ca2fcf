"""``exarl sweep``: many settings of one training, and which is best."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exarl.cli import words as line
from exarl.cli.tables import parameter_table
from exarl.comm.mpi import launched_ranks, launched_world
from exarl.config import parse_flags, schema_of
from exarl.errors import ConfigError, ExarlError, install
from exarl.records.directory import expand, in_a_path
from exarl.sweep.spec import (
    MAY_CHANGE,
    StudyConfig,
    SweepOptions,
    changed,
    check_study,
    checked_options,
    describe,
    read_toml,
)

HELP = """\
usage: exarl sweep [--config study.toml] [--study DIR] [--option value ...] [--key VALUES ...]

Trains with many settings, several seeds each, and finds the best. A parameter of 'exarl train' is
varied when its value is a range or a list of choices:

  --learning_rate 1e-4:1e-2:log     a range; ':log' for a logarithmic one
  --batch_size 32:256:int           whole numbers; ':16' instead of ':int' in steps of 16
  --gamma 0.9,0.99                  choices
  --hidden [64,64],[256]            choices that are lists ('64,64' alone is one list, not varied)

'--space.key' varies in any case, '--train.key' never does. study.toml has the tables [sweep] (the
options below), [space] and [train]; what is typed wins. A --config that is not .toml is a
configuration of the trainings.

  --study DIR      the folder of the study (default: one named after the command, in output_dir).
                   The same command, or 'exarl sweep --study DIR' alone, continues it
  --worker         take settings of an existing study until none is left: several may do so at once
  --retry_failed   run settings that failed once more
  --report         only write best.json, trials.csv and report.html anew
  --trust          continue a study that you have not made here, and run what it names (docs/runs.md)

Under mpiexec or srun the ranks are divided into groups of --procs, each with a training at a time.

"""
_SLURM_JOBS = 4


@dataclass(frozen=True)
class Command:
    """A command line, understood."""

    path: Path
    config: StudyConfig
    worker: bool = False
    retry_failed: bool = False
    report: bool = False


def sweep(words: list[str]) -> int:
    if line.wants_help(words):
        sys.stdout.write(HELP + parameter_table(schema_of(SweepOptions)))
        return 0
    command = understand(list(words))
    if command.report:
        return report(command)
    executor = choose_executor(command.config)
    if executor == "mpi":
        return run_on_ranks(command)
    if executor == "slurm":
        return submit(command)
    return run(command, executor)


def understand(words: list[str]) -> Command:
    """The study that a command line means, checked; nothing is written. ConfigError otherwise."""
    worker, retry = line.take_flag(words, "worker"), line.take_flag(words, "retry_failed")
    only_report, trust = line.take_flag(words, "report"), line.take_flag(words, "trust")
    study, config = line.take(words, "study"), line.take(words, "config")
    typed = {name: line.take(words, name) for name in schema_of(SweepOptions)}
    typed = {name: text for name, text in typed.items() if text is not None}
    tables: Mapping[str, Mapping[str, Any]] = {}
    if config is not None and config.endswith(".toml"):
        tables, origin, config = read_toml(expand(config)), config, None
        given = checked_options(tables["sweep"], origin)
    else:
        given = {}
    given |= checked_options(typed, "command line", text=True)
    flags = parse_flags(words)

    from exarl.sweep.study import check_stored, find_study

    asked = None
    if flags or tables or config or study is None:
        asked = describe(SweepOptions(**given), flags, tables, config)
    place = expand(study) if study is not None else default_place(asked)
    changes = {key: value for key, value in given.items() if key in MAY_CHANGE}
    fixed = sorted(given.keys() - changes.keys())
    if asked is None and fixed:
        raise ConfigError(f"--{fixed[0]} of a stored study cannot change: leave it out")
    if (worker or only_report) and not (place / "study.json").is_file():
        raise ConfigError(f"{place} holds no study (study.json is missing)")
    found = changed(find_study(place, asked, changes), changes)
    typed_here = asked is not None and asked.folder == found.folder
    if not (trust or typed_here):  # a report looks up what was varied, too
        check_stored(place)
    if asked is None and not only_report:
        check_study(found)
    return Command(place, found, worker, retry, only_report)


def default_place(config: StudyConfig | None) -> Path:
    """Where a study goes if nobody says: the same command finds it again."""
    assert config is not None
    first = {key: dimension.ends()[0] for key, dimension in config.space.items()}
    learner = config.configuration(first).learner
    name = f"sweep_{learner.agent}_{in_a_path(learner.env)}_{config.digest()}"
    return expand(learner.output_dir) / name


def choose_executor(config: StudyConfig) -> str:
    """Where trainings run; ConfigError when that does not go with how this was started."""
    launched = launched_ranks()
    ranks = launched[1] if launched is not None else 1
    asked = config.options.executor
    if asked == "mpi" and ranks == 1:
        raise ConfigError("executor mpi runs in an MPI job: mpiexec -n N exarl sweep ...")
    if asked not in (None, "mpi") and ranks > 1:
        raise ConfigError(f"executor {asked} runs on one rank, not on {ranks}: leave mpiexec out")
    if asked == "fused":
        from exarl.sweep.executors.fused import check_fused

        check_fused(config)
    return asked or ("mpi" if ranks > 1 else "local")


def make_executor(config: StudyConfig, name: str) -> Any:
    options = config.options
    if name == "ray":
        from exarl.sweep.executors.ray import Tasks

        return Tasks(options.jobs, options.procs, options.address)
    from exarl.sweep.executors.local import Local

    return Local(options.jobs or default_jobs(options.procs), options.procs)


def default_jobs(procs: int) -> int:
    """As many trainings at a time as there are cores for."""
    return max(1, len(os.sched_getaffinity(0)) // procs)


def run(command: Command, name: str, executor: Any = None) -> int:
    """Work on the study until it is done or a signal comes; the exit code."""
    need_optuna()
    from exarl.sweep.manager import Manager
    from exarl.sweep.owner import Owner
    from exarl.sweep.result import write_results
    from exarl.sweep.study import Study, StudyFolder, store_study
    from exarl.sweep.table import make_display

    config, folder = command.config, StudyFolder(command.path)
    with contextlib.ExitStack() as stack:
        if name != "fused":  # first, since a cluster may not be there
            executor = executor or make_executor(config, name)
            stack.callback(executor.close)
        store_study(command.path, config)
        display = make_display(sys.stderr, f"sweep {command.path.name}", config.trials)
        stack.callback(display.close)
        display.note(f"study {command.path}")
        study = Study(folder, config, stack.enter_context(Owner(folder.workers)))
        if name == "fused":
            received = run_whole_batches(study, display)
        else:
            manager = Manager(study, executor, display, wait=not command.worker)
            received = manager.run(command.retry_failed)
    if received is not None:
        again = f"exarl sweep --study {shlex.quote(str(command.path))}"
        sys.stderr.write(f"exarl: stopped early; continue with: {again}\n")
        return 128 + received
    if command.worker and study.running():
        return 0  # the last worker sums up
    return say(command, study, write_results(study))


def run_whole_batches(study: Any, display: Any) -> int | None:
    from exarl.sweep.executors.fused import run_fused
    from exarl.sweep.population import run_population

    return run_fused(study, run_population, display)


def run_on_ranks(command: Command) -> int:
    """The ranks of this job: rank 0 manages, the others serve it. An error ends them all."""
    from exarl.sweep.executors.mpi import Groups, check_groups, serve

    comm = launched_world()
    procs = command.config.options.procs
    check_groups(comm.size, procs)
    need_optuna()
    try:
        if comm.rank:
            serve(comm, procs)
            return 0
        return run(command, "mpi", Groups(comm, procs))
    except BaseException as error:
        expected = isinstance(error, ExarlError)
        sys.stderr.write(f"exarl: {error}\n" if expected else traceback.format_exc())
        sys.stderr.flush()
        comm.Abort(error.exit_code if isinstance(error, ExarlError) else 1)
        raise


def submit(command: Command) -> int:
    """Make the study and say how a Slurm array works on it."""
    need_optuna()
    from exarl.sweep.study import Study, StudyFolder, store_study

    store_study(command.path, command.config)
    Study(StudyFolder(command.path), command.config).prepare()
    tasks = min(command.config.options.jobs or _SLURM_JOBS, command.config.trials)
    place = shlex.quote(str(command.path))
    sys.stdout.write(
        f"study  {command.path} ({command.config.trials} settings)\n"
        f"submit exarl slurm --array 0-{tasks - 1} -- sweep --study {place} --worker\n"
        f"then   exarl sweep --study {place} --report\n"
    )
    return 0


def report(command: Command) -> int:
    """Write the results of a study as it stands."""
    need_optuna()
    from exarl.sweep.result import write_results
    from exarl.sweep.study import Study, StudyFolder

    study = Study(StudyFolder(command.path), command.config)
    return say(command, study, write_results(study))


def say(command: Command, study: Any, best: Any) -> int:
    """The result in a few lines; exit code 1 when no setting has a value."""
    from exarl.sweep.space import words
    from exarl.sweep.table import counts_text, result_text

    sys.stdout.write(f"settings   {counts_text(study.rows(), study.config.trials)}\n")
    if best is not None:
        sys.stdout.write(
            f"best       {result_text(best)}: setting {best.setting}\n"
            f"           {' '.join(words(best.point))}\n"
            f"train      exarl train --config {shlex.quote(str(study.folder.best))}\n"
        )
    sys.stdout.write(f"report     {study.folder.report}\n")
    sys.stdout.flush()
    if best is None:
        errors = [row.error for row in study.rows() if row.error]
        sys.stderr.write(f"exarl: no setting has a value{f': {errors[-1]}' if errors else ''}\n")
    return 0 if best is not None else 1


def need_optuna() -> None:
    """ConfigError where the packages of a sweep are missing."""
    import importlib.util

    for package in ("optuna", "plotly"):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"a sweep needs {package}: {install('sweep')}")
