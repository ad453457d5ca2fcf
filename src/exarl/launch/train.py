"""``exarl train`` and ``exarl resume``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exarl.comm.mpi import launched_ranks
from exarl.config import Configuration, LearnerConfig, schema_of
from exarl.errors import ConfigError
from exarl.launch import words as line
from exarl.launch.aliases import modern
from exarl.launch.describe import parameter_table

TRAIN_HELP = """\
usage: exarl train [--config FILE] [--procs N] [--serial] [--key value ...]

Trains an agent in an environment and leaves everything in a run directory.

  --config FILE   a JSON file of parameters, or a folder like exarl/config
  --procs N       start N MPI ranks (the same as mpiexec -n N exarl train ...)
  --max_restarts K  with --procs: resume a job that was lost, up to K times
  --serial        everything in this process, without MPI: for the debugger

Parameters of the run (any of them may stand in FILE as well). Those of the agent, the network, the
workflow and the environment are parameters too: --epsilon 0.1, or --agent.epsilon 0.1 where two have
the same name; 'exarl describe ID' lists them.

"""

RESUME_HELP = """\
usage: exarl resume RUN [--procs N] [--serial] [--key value ...]

Continues a run from its newest whole checkpoint, on as many ranks as it had (or N). A run that was
killed goes on as if nothing had happened; one that is finished needs a later stop:
exarl resume RUN --total_steps 120000
"""


def train(words: list[str]) -> int:
    if line.wants_help(words):
        sys.stdout.write(TRAIN_HELP + parameter_table(schema_of(LearnerConfig)))
        return 0
    words, notes = modern(words, os.environ)
    given = list(words)
    config = line.take(words, "config")
    procs = line.take_count(words, "procs")
    restarts = line.take_count(words, "max_restarts", 0) or 0
    serial = line.take_flag(words, "serial")
    if restarts and procs is None:
        raise ConfigError("--max_restarts needs --procs (command line)")

    for note in notes:
        sys.stderr.write(f"exarl: {note}\n")

    from exarl.components import configure
    from exarl.experiment import ExaLearner
    from exarl.runs.directory import check_place, expand

    if procs is not None and not serial and launched_ranks() is None:
        configuration = configure(config, words)
        check_ranks(configuration, procs)
        check_place(expand(configuration.learner.run_dir or configuration.learner.output_dir))
        kept = without(without(given, "procs"), "max_restarts")
        return launch_again(procs, ["train", *kept], restarts)
    return finish(ExaLearner(config=config, argv=words, serial=serial))


def resume(words: list[str]) -> int:
    if line.wants_help(words):
        sys.stdout.write(RESUME_HELP)
        return 0
    path = line.take_path(words, "run directory")
    procs = line.take_count(words, "procs")
    serial = line.take_flag(words, "serial")

    from exarl.components import build_workflow, check_same_run, configure_again, finished_by
    from exarl.experiment import ExaLearner
    from exarl.runs.directory import open_run, stored_ranks

    run = open_run(path)
    configuration = configure_again(run, words)
    check_same_run(run, configuration)
    hosted = build_workflow(configuration).hosted
    launches = launched_ranks() is None and not serial and not hosted
    procs = (procs or stored_ranks(run)) if launches else 1
    if launches:
        check_ranks(configuration, procs)
    if (reason := finished_by(run, configuration)) is not None:
        return say_finished(path, reason)
    if procs > 1:
        return launch_again(procs, ["resume", path, *words])
    return finish(ExaLearner.resume(path, argv=words, serial=serial))


def say_finished(path: str, reason: str) -> int:
    """One line of a job on what to do with a run that is at its end."""
    launched = launched_ranks()
    if launched is None or launched[0] == 0:
        again = f"exarl resume {path} --{reason} N"
        sys.stderr.write(f"exarl: the run is finished ({reason}); to go on: {again}\n")
    return 0


def finish(learner: object) -> int:
    """Run, say where everything is, and turn the reason for stopping into an exit code."""
    from exarl.experiment import ExaLearner

    assert isinstance(learner, ExaLearner)
    result = learner.run()
    if result is None:
        return 0
    run = result.run_dir
    sys.stdout.write(closing_lines(result.summary, run, learner.config.reward_window))
    sys.stdout.flush()
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
    from exarl.components import check_configuration, plan

    plan(configuration, procs)
    check_configuration(configuration, procs)


def launch_again(procs: int, words: Sequence[str], max_restarts: int = 0) -> int:
    from exarl.launch.mpiexec import launch

    return launch(procs, words, max_restarts)


def without(words: Sequence[str], option: str) -> list[str]:
    kept = list(words)
    line.take(kept, option)
    return kept
