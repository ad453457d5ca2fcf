"""``exarl train`` and ``exarl resume``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exarl.cli import words as line
from exarl.cli.aliases import modern
from exarl.cli.describe import component
from exarl.cli.tables import grouped_table, short_table
from exarl.comm.mpi import launched_ranks
from exarl.config import (
    FAMILIES,
    GROUPS,
    Configuration,
    LearnerConfig,
    parse_flags,
    schema_of,
)
from exarl.errors import DIVERGED, ConfigError

TRAIN_USAGE = "usage: exarl train [--config FILE] [--procs N] [--serial] [--key value ...]\n"
TRAIN_HELP = f"""\
{TRAIN_USAGE}
Trains an agent in an environment and leaves everything in a run directory.

  --config FILE   a JSON file of parameters, or a folder like exarl/config
  --procs N       start N MPI ranks (the same as mpiexec -n N exarl train ...)
  --max_restarts K  with --procs: resume a job that was lost, up to K times
  --serial        everything in this process, without MPI: for the debugger

Parameters of the run follow; any of them may stand in FILE as well. The agent, the network, the
workflow and the environment have their own: --epsilon 0.1, or --agent.noise 0.1 where two have the
same name. 'exarl train --help --agent SAC-v0 --env Pendulum-v1' shows theirs, 'exarl help WORD'
searches, 'exarl describe ID' tells types and ranges too.

"""
CHOSEN = {"agents": "agent", "models": "model_type", "workflows": "workflow", "envs": "env"}
"""The kinds of components, and the parameter that chooses one."""

RESUME_HELP = """\
usage: exarl resume RUN [--procs N] [--serial] [--trust] [--key value ...]

Continues a run from its newest whole checkpoint, on as many ranks as it had (or N). A run that was
killed goes on as if nothing had happened; one that is finished needs a later stop:
exarl resume RUN --total_steps 120000

A run that you have not made here yourself asks for --trust before it runs anything that is not part
of EXARL (docs/runs.md).
"""


def train(words: list[str]) -> int:
    if line.wants_help(words):
        sys.stdout.write(train_help(words))
        return 0
    words, notes = modern(words, os.environ)
    given = list(words)
    config = line.take(words, "config")
    procs = line.take_count(words, "procs")
    restarts = line.take_count(words, "max_restarts", 0) or 0
    serial = line.take_flag(words, "serial")
    if restarts and procs is None:
        raise ConfigError("--max_restarts needs --procs (command line)")

    say(notes)

    from exarl.records.directory import RunDirectory, check_place, expand
    from exarl.records.lock import refuse_if_held
    from exarl.run.components import configure
    from exarl.run.experiment import ExaLearner

    if procs is not None and not serial and launched_ranks() is None:
        configuration = configure(config, words)
        check_ranks(configuration, procs)
        check_place(expand(configuration.learner.run_dir or configuration.learner.output_dir))
        if configuration.learner.run_dir:
            refuse_if_held(RunDirectory(expand(configuration.learner.run_dir)))
        kept = without(without(given, "procs"), "max_restarts")
        return launch_again(procs, ["train", *kept], restarts)
    learner = ExaLearner(config=config, argv=words, serial=serial)
    code = finish(learner)
    say(shadowed(learner.configuration, words))
    return code


def say(notes: Sequence[str]) -> None:
    """Notes on standard error, from one rank of a job."""
    launched = launched_ranks()
    if launched is None or launched[0] == 0:
        sys.stderr.write("".join(f"exarl: {note}\n" for note in notes))


def train_help(words: list[str]) -> str:
    """The parameters of the components that ``words`` choose, or else those of the run by groups."""
    words = [word for word in words if word not in ("-h", "--help")]
    text = ""
    for kind, key in CHOSEN.items():
        if (id := line.take(words, key)) is not None:
            found = component(id, kind)
            table = short_table(found.schema) or "  none\n"
            text += f"\n{id} ({found.kind}):\n{table}{found.more}"
    if text:
        return f"{TRAIN_USAGE}\nThose of the run: 'exarl train --help'.\n{text}"
    return TRAIN_HELP + grouped_table(schema_of(LearnerConfig), GROUPS)


def shadowed(configuration: Configuration, words: Sequence[str]) -> list[str]:
    """Notes on flags of the run whose names the environment or another component has too."""
    notes = []
    for key in parse_flags(words):
        others = [f for f in FAMILIES[1:] if key in configuration.values[f]]
        if key in configuration.values["learner"] and others:
            ways = " and ".join(f"--{family}.{key}" for family in others)
            notes.append(f"--{key} is the run's; there is {ways} as well")
    return notes


def resume(words: list[str]) -> int:
    if line.wants_help(words):
        sys.stdout.write(RESUME_HELP)
        return 0
    path = line.take_path(words, "run directory")
    procs = line.take_count(words, "procs")
    serial, trust = line.take_flag(words, "serial"), line.take_flag(words, "trust")

    from exarl.records.directory import open_run, stored_ranks
    from exarl.records.lock import refuse_if_held
    from exarl.run.components import build_workflow, check_same_run, configure_again, finished_by
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
        return say_finished(path, reason)
    if procs > 1:
        return launch_again(procs, ["resume", path, *words, *(["--trust"] if trust else [])])
    return finish(ExaLearner.resume(path, argv=words, serial=serial, trust=trust))


def say_finished(path: str, reason: str) -> int:
    """One line of a job on what to do with a run that is at its end."""
    say([f"the run is finished ({reason}); to go on: exarl resume {path} --{reason} N"])
    return 0


def finish(learner: object) -> int:
    """Run, say where everything is, and turn the reason for stopping into an exit code."""
    from exarl.records.state import DIVERGENCE
    from exarl.run.experiment import ExaLearner
    from exarl.training.divergence import remedy

    assert isinstance(learner, ExaLearner)
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
    """What there is to say of a run at its end."""
    reward = summary["last_reward_mean"]
    shown = "no finished episode" if reward is None else f"{reward:.2f}"
    curve = run / "learning_curve.png"
    return (
        f"stopped by     {summary['reason']}\n"
        f"reward         {shown} (mean of the last {min(window, summary['episodes_total'])} episodes)\n"
        f"steps          {summary['timesteps_total']:,} in {summary['wall_s']:.1f} s"
        f" ({summary['steps_per_s']:,.0f} steps/s, {summary['updates_per_s']:,.0f} updates/s)\n"
        f"bound by       {summary['bound_by']}\n"
        f"run directory  {run}\n" + (f"learning curve {curve}\n" if curve.is_file() else "")
    )


def check_ranks(configuration: Configuration, procs: int) -> None:
    """Refuse a wrong number of ranks, and what every rank would refuse, before anything is started."""
    from exarl.run.components import check_configuration, plan

    plan(configuration, procs)
    check_configuration(configuration, procs)


def launch_again(procs: int, words: Sequence[str], max_restarts: int = 0) -> int:
    from exarl.cli.mpiexec import launch

    return launch(procs, words, max_restarts)


def without(words: Sequence[str], option: str) -> list[str]:
    kept = list(words)
    line.take(kept, option)
    return kept
