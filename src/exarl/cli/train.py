"""``exarl train`` and ``exarl resume``."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exarl.cli import words as line
from exarl.cli.aliases import modern
from exarl.cli.describe import component
from exarl.cli.tables import grouped_table, short_table
from exarl.comm.channel import launched_ranks
from exarl.config import (
    AUTO,
    FAMILIES,
    GROUPS,
    Configuration,
    LearnerConfig,
    parse_flags,
    schema_of,
)
from exarl.display.closing import closing_rows
from exarl.errors import DIVERGED, ConfigError

if TYPE_CHECKING:
    from exarl.run.experiment import ExaLearner

TRAIN_USAGE = (
    "usage: exarl train [--config FILE] [--procs N] [--serial] [--auto] [--key value ...]\n"
)
TRAIN_HELP = f"""\
{TRAIN_USAGE}
Trains an agent in an environment and writes all results to a run directory.

  --config FILE   a JSON file of parameters, or a folder with the layout of exarl/config
  --procs N       start N MPI ranks (the same as mpiexec -n N exarl train ...)
  --max_restarts K  with --procs: resume the run if the job fails, at most K times
  --serial        run in this process without MPI, for debugging
  --auto          measure the environment first, and choose what suits it and was not given

The parameters of the run follow; FILE may contain any of them. The agent, the network, the workflow and
the environment have their own parameters: --epsilon 0.1, or --agent.noise 0.1 if two components have a
parameter of that name. 'exarl train --help --agent SAC-v0 --env Pendulum-v1' lists them, 'exarl help
WORD' searches them, 'exarl describe ID' also gives types and ranges.

"""
CHOSEN = {"agents": "agent", "models": "model_type", "workflows": "workflow", "envs": "env"}
"""The kinds of components, and the parameter that selects one."""

RESUME_HELP = """\
usage: exarl resume RUN [--procs N] [--serial] [--trust] [--key value ...]

Continues a run from its newest intact checkpoint, on as many ranks as before (or N). A run that was
killed continues as if it had not been interrupted. A finished run needs a larger limit:
exarl resume RUN --total_steps 120000

A run that you did not make here needs --trust before it executes code that is not part of EXARL
(docs/runs.md).
"""


def train(words: list[str]) -> int:
    words, notes = modern(words, os.environ)
    words, more = with_auto(words)
    notes = [*notes, *more]
    given = list(words)
    config = line.take(words, "config")
    procs = line.take_count(words, "procs")
    restarts = line.take_count(words, "max_restarts", 0)
    serial = line.take_flag(words, "serial")
    if restarts and procs is None:
        raise ConfigError("--max_restarts needs --procs (command line)")

    say(notes)

    from exarl.cli.mpiexec import launch
    from exarl.records.directory import RunDirectory, check_place, expand
    from exarl.records.lock import refuse_if_held
    from exarl.run.configure import configure
    from exarl.run.experiment import ExaLearner

    if procs is not None and not serial and launched_ranks() is None:
        configuration = configure(config, words)
        check_ranks(configuration, procs)
        check_place(expand(configuration.learner.run_dir or configuration.learner.output_dir))
        if configuration.learner.run_dir:
            refuse_if_held(RunDirectory(expand(configuration.learner.run_dir)))
        kept = without(without(given, "procs"), "max_restarts")
        return launch(procs, ["train", *kept], restarts)
    learner = ExaLearner(config=config, argv=words, serial=serial)
    code = finish(learner)
    say(shadowed(learner.configuration, words))
    return code


def with_auto(words: list[str]) -> tuple[list[str], list[str]]:
    """The words with ``--auto`` replaced by what it chooses, and what that is and why.

    It is measured here, before ranks are started, so that all of them get the same.
    """
    rest = list(words)
    if launched_ranks() is not None or not line.take_flag(rest, AUTO):
        return words, []
    from exarl.run.configure import configure
    from exarl.run.proposals import measured, propose

    flags = list(rest)
    config = line.take(flags, "config")
    procs = line.take_count(flags, "procs")
    serial = line.take_flag(flags, "serial")
    line.take_count(flags, "max_restarts", 0)
    configuration = configure(config, flags)
    cores = procs or (1 if serial else len(os.sched_getaffinity(0)))
    found, limit = measured(configuration)
    proposal = propose(found, configuration, limit, cores)
    notes = [f"auto: {reason}" for reason in proposal.reasons] or ["auto: the defaults suit it"]
    if proposal.procs and procs is None:
        rest += ["--procs", str(proposal.procs)]
    return [*rest, f"--{AUTO}", json.dumps(proposal.settings)], notes


def say(notes: Sequence[str]) -> None:
    """Write notes to standard error, on the first rank of a job only."""
    launched = launched_ranks()
    if launched is None or launched[0] == 0:
        sys.stderr.write("".join(f"exarl: {note}\n" for note in notes))


def train_help(words: list[str]) -> str:
    """The parameters of the components that ``words`` select; without any, those of the run."""
    words = [word for word in words if word not in ("-h", "--help")]
    text = ""
    for kind, key in CHOSEN.items():
        if (id := line.take(words, key)) is not None:
            found = component(id, kind)
            table = short_table(found.schema) or "  none\n"
            text += f"\n{id} ({found.kind}):\n{table}{found.more}"
    if text:
        return f"{TRAIN_USAGE}\nThe parameters of the run: 'exarl train --help'.\n{text}"
    return TRAIN_HELP + grouped_table(schema_of(LearnerConfig), GROUPS)


def shadowed(configuration: Configuration, words: Sequence[str]) -> list[str]:
    """Notes on flags that were taken as parameters of the run although a component has them too."""
    notes = []
    for key in parse_flags(words):
        others = [f for f in FAMILIES[1:] if key in configuration.values[f]]
        if key in configuration.values["learner"] and others:
            ways = " and ".join(f"--{family}.{key}" for family in others)
            notes.append(f"--{key} set the parameter of the run; there is also {ways}")
    return notes


def resume(words: list[str]) -> int:
    path = line.take_path(words, "run directory")
    procs = line.take_count(words, "procs")
    serial, trust = line.take_flag(words, "serial"), line.take_flag(words, "trust")

    from exarl.records.directory import open_run, stored_ranks
    from exarl.records.lock import refuse_if_held
    from exarl.run.build import build_workflow
    from exarl.run.configure import check_same_run, configure_again, finished_by
    from exarl.run.experiment import ExaLearner

    run = open_run(path)
    configuration = configure_again(run, words, trust)
    check_same_run(run, configuration)
    hosted = build_workflow(configuration).hosted
    launches = launched_ranks() is None and not serial and not hosted
    procs = (procs or stored_ranks(run)) if launches else 1
    if launches:
        check_ranks(configuration, procs)
    refuse_if_held(run)
    if (reason := finished_by(run, configuration)) is not None:
        say([f"the run is finished ({reason}); to continue: exarl resume {path} --{reason} N"])
        return 0
    if procs > 1:
        from exarl.cli.mpiexec import launch

        return launch(procs, ["resume", path, *words, *(["--trust"] if trust else [])])
    return finish(ExaLearner.resume(path, argv=words, serial=serial, trust=trust))


def finish(learner: ExaLearner) -> int:
    """Run the training, print its summary, and return the exit code of its reason for stopping."""
    from exarl.records.state import DIVERGENCE
    from exarl.training.divergence import remedy

    result = learner.run()
    if result is None:
        return 0
    run = result.run_dir
    sys.stdout.write(closing_lines(result.summary, run, learner.config.reward_window))
    sys.stdout.flush()
    if result.reason == DIVERGENCE:
        sys.stderr.write(f"exarl: {remedy(result.summary, run)}\n")
        return DIVERGED
    if result.reason in signal.Signals.__members__:
        sys.stderr.write(f"exarl: stopped early; continue with: exarl resume {run}\n")
        return 128 + signal.Signals[result.reason]
    return 0


def closing_lines(summary: Mapping[str, Any], run: Path, window: int) -> str:
    """The summary that is printed at the end of a run."""
    rows = closing_rows(summary, run, window)
    curve = run / "learning_curve.png"
    rows |= {"learning curve": str(curve)} if curve.is_file() else {}
    return "".join(f"{name:<15}{text}\n" for name, text in rows.items())


def check_ranks(configuration: Configuration, procs: int) -> None:
    """Refuse a wrong number of ranks, and what every rank would refuse, before anything is started."""
    from exarl.run.checks import check_configuration, plan

    plan(configuration, procs)
    check_configuration(configuration, procs)


def without(words: Sequence[str], option: str) -> list[str]:
    kept = list(words)
    line.take(kept, option)
    return kept
