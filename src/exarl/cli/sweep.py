"""``exarl sweep``: train with many settings and find the best."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exarl.cli import words as line
from exarl.cli.tables import parameter_table
from exarl.comm.channel import launched_ranks, launched_world
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

if TYPE_CHECKING:
    from exarl.sweep.executors import Executor
    from exarl.sweep.study import Study

HELP = """\
usage: exarl sweep [--config study.toml] [--study DIR] [--option value ...] [--key VALUES ...]

Trains with many settings, with several seeds each, and finds the best setting. A parameter of
'exarl train' is varied if its value is a range or a list of choices:

  --learning_rate 1e-4:1e-2:log     a range; ':log' for a logarithmic scale
  --batch_size 32:256:int           whole numbers; ':16' instead of ':int' for steps of 16
  --gamma 0.9,0.99                  choices
  --hidden [64,64],[256]            choices that are lists ('64,64' alone is one list, not varied)

'--space.key' is always varied, '--train.key' never. study.toml has the tables [sweep] (the options
below), [space] and [train]; the command line overrides it. A --config file that is not .toml is a
configuration of the training runs.

  --study DIR      the folder of the study (default: one named after the command, in output_dir).
                   The same command, or 'exarl sweep --study DIR' alone, continues it
  --worker         work on an existing study until no setting is left; several workers may run at once
  --retry_failed   repeat settings that failed
  --report         only write best.json, trials.csv and report.html again
  --trust          allow code named by a study that you did not make here (docs/runs.md)

Under mpiexec or srun the ranks are divided into groups of --procs; each group trains one run at a time.

"""
_SLURM_JOBS = 4


@dataclass(frozen=True)
class StudyRequest:
    """The study and the action that a command line asks for."""

    path: Path
    config: StudyConfig
    worker: bool = False
    retry_failed: bool = False
    report: bool = False


def sweep_help(_: list[str]) -> str:
    return HELP + parameter_table(schema_of(SweepOptions))


def sweep(words: list[str]) -> int:
    command = understand(list(words))
    if command.report:
        return report(command)
    executor = choose_executor(command.config)
    if executor == "mpi":
        return run_on_ranks(command)
    if executor == "slurm":
        return submit(command)
    return run(command, executor)


def understand(words: list[str]) -> StudyRequest:
    """Parse and check a command line without writing anything; ConfigError if it is not valid."""
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
        raise ConfigError(f"--{fixed[0]} of a stored study cannot be changed: omit it")
    if (worker or only_report) and not (place / "study.json").is_file():
        raise ConfigError(f"{place} contains no study (study.json is missing)")
    found = changed(find_study(place, asked, changes), changes)
    typed_here = asked is not None and asked.folder == found.folder
    if not (trust or typed_here):  # a report also loads what was varied
        check_stored(place)
    if asked is None and not only_report:
        check_study(found)
    return StudyRequest(place, found, worker, retry, only_report)


def default_place(config: StudyConfig | None) -> Path:
    """The default folder of a study: the same command gives the same folder."""
    assert config is not None
    learner = config.configuration(config.first_point()).learner
    name = f"sweep_{learner.agent}_{in_a_path(learner.env)}_{config.digest()}"
    return expand(learner.output_dir) / name


def choose_executor(config: StudyConfig) -> str:
    """The executor of the training runs; ConfigError if it does not fit the way this was launched."""
    launched = launched_ranks()
    ranks = launched[1] if launched is not None else 1
    asked = config.options.executor
    if asked == "mpi" and ranks == 1:
        raise ConfigError("executor mpi runs in an MPI job: mpiexec -n N exarl sweep ...")
    if asked not in (None, "mpi") and ranks > 1:
        raise ConfigError(f"executor {asked} runs on one rank, not on {ranks}: omit mpiexec")
    if asked == "fused":
        from exarl.sweep.executors.fused import check_fused

        check_fused(config)
    return asked or ("mpi" if ranks > 1 else "local")


def make_executor(config: StudyConfig, name: str) -> Executor:
    options = config.options
    if name == "ray":
        from exarl.sweep.executors.ray import Tasks

        return Tasks(options.jobs, options.procs, options.address)
    from exarl.sweep.executors.local import Local

    return Local(options.jobs or default_jobs(options.procs), options.procs)


def default_jobs(procs: int) -> int:
    """As many training runs at a time as there are cores for."""
    return max(1, len(os.sched_getaffinity(0)) // procs)


def run(command: StudyRequest, name: str, executor: Executor | None = None) -> int:
    """Work on the study until it is done or a signal arrives; return the exit code."""
    need_optuna()
    from exarl.sweep.executors.fused import run_fused
    from exarl.sweep.manager import Manager
    from exarl.sweep.owner import Owner
    from exarl.sweep.population import run_population
    from exarl.sweep.study import Study, StudyFolder, store_study
    from exarl.sweep.table import make_display

    config, folder = command.config, StudyFolder(command.path)
    with contextlib.ExitStack() as stack:
        if name != "fused":  # first: the cluster may be unreachable
            executor = executor or make_executor(config, name)
            stack.callback(executor.close)
        store_study(command.path, config)
        display = make_display(sys.stderr, f"sweep {command.path.name}", config.trials)
        stack.callback(display.close)
        display.note(f"study {command.path}")
        study = Study(folder, config, stack.enter_context(Owner(folder.workers)))
        if executor is None:
            received = run_fused(study, run_population, display)
        else:
            manager = Manager(study, executor, display, wait=not command.worker)
            received = manager.run(command.retry_failed)
    if received is not None:
        again = f"exarl sweep --study {shlex.quote(str(command.path))}"
        sys.stderr.write(f"exarl: stopped early; continue with: {again}\n")
        return 128 + received
    if command.worker and study.running():
        return 0  # the last worker writes the results
    return conclude(study)


def run_on_ranks(command: StudyRequest) -> int:
    """Run the study on the ranks of this job: rank 0 manages, the others train. An error ends all."""
    from exarl.sweep.executors.mpi import Groups, check_groups, serve

    comm = launched_world()
    assert comm is not None, "called in a job of several ranks only"
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


def submit(command: StudyRequest) -> int:
    """Create the study and print the commands of a Slurm job array that works on it."""
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


def report(command: StudyRequest) -> int:
    """Write the results of a study so far."""
    need_optuna()
    from exarl.sweep.study import Study, StudyFolder

    return conclude(Study(StudyFolder(command.path), command.config))


def conclude(study: Study) -> int:
    """Write and print the results; return exit code 1 if no setting has a value."""
    from exarl.sweep.result import write_results
    from exarl.sweep.space import words
    from exarl.sweep.table import counts_text, result_text

    best = write_results(study)
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
    """ConfigError if a package that sweeps need is missing."""
    import importlib.util

    for package in ("optuna", "plotly"):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"a sweep needs {package}: {install('sweep')}")
