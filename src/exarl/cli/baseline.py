"""``exarl baseline``: what plain methods reach in an environment, as a run beside those of agents."""

from __future__ import annotations

import sys

from exarl.cli import words as line
from exarl.cli.train import train
from exarl.errors import ConfigError

HELP = """\
usage: exarl baseline --env E --method METHOD --budget N [--budget_in steps|episodes]
                      [--form constant|pid|linear] [--jobs N] [--key value ...]

Spends a budget on a plain method in the environment that agents train in, with the same evaluation in
the same episodes, and writes a run: 'exarl runs', 'report', 'evaluate' and 'resume' know it.

  --method random   random actions
           hold     one constant action, found by CMA-ES
           pid      gains of a PID controller, found by CMA-ES (--pid_input, --pid_setpoint)
           cma-es   a linear policy, found by CMA-ES
           bayes    a linear policy, found by Bayesian optimisation (TPE)
  --budget N        environment steps of all episodes that are tried, or with
  --budget_in       episodes their number
  --form            what cma-es and bayes search instead of a linear policy
  --jobs N          environments side by side, each on a rank of its own
  --key value       a parameter of the run, of Search-v0 or of the environment, as for exarl train

Every twentieth part of a budget of steps the best controller so far is evaluated (--eval_interval). At
the end it is written to controller.json in the run directory.
"""
METHODS: dict[str, tuple[str, ...]] = {
    "random": ("--agent", "Random-v0"),
    "hold": ("--agent", "Search-v0", "--form", "constant"),
    "pid": ("--agent", "Search-v0", "--form", "pid"),
    "cma-es": ("--agent", "Search-v0", "--method", "cma-es"),
    "bayes": ("--agent", "Search-v0", "--method", "bayes"),
}
EVALUATIONS = 20


def baseline(words: list[str]) -> int:
    method = line.take(words, "method") or ""
    line.check_choice(method, METHODS, f"--method is no method: '{method}'")
    budget, unit = line.take_count(words, "budget"), line.take(words, "budget_in") or "steps"
    line.check_choice(unit, ("steps", "episodes"), f"--budget_in is not '{unit}'")
    jobs = line.take_count(words, "jobs", 1)
    if budget is None:
        raise ConfigError("how much may it cost? --budget N environment steps")
    if "--agent" in words:
        raise ConfigError("--agent is not for a baseline, which has a --method")
    if "--form" in words and method not in ("cma-es", "bayes"):
        raise ConfigError(f"--form is for the methods cma-es and bayes, not for {method}")
    from exarl.records.directory import RunDirectory, expand, new_run_directory
    from exarl.run.configure import configure

    given = [*METHODS[method], *words]
    learner = configure(None, without_config(given)).learner
    stop = "--total_steps" if unit == "steps" else "--n_episodes"
    given += [stop, str(budget)]
    if unit == "steps" and learner.eval_interval is None:
        given += ["--eval_interval", str(max(1, budget // EVALUATIONS))]
    if learner.run_dir is None:
        place = new_run_directory(
            learner.output_dir, f"baseline-{method}", learner.env, learner.workflow
        )
        given += ["--run_dir", str(place.path)]
    else:
        place = RunDirectory(expand(learner.run_dir))
    code = train([*given, *(["--procs", str(jobs + 1)] if jobs > 1 else [])])
    if code == 0 and method != "random":
        from exarl.run.controller import write_controller

        path = write_controller(place)
        sys.stdout.write(f"controller     {path}\n")
    return code


def without_config(words: list[str]) -> list[str]:
    """ConfigError for options of ``exarl train`` that a baseline does not take."""
    for name in ("config", "procs", "serial", "auto"):
        if f"--{name}" in words:
            raise ConfigError(f"--{name} is not for a baseline (docs/baselines.md)")
    return words
