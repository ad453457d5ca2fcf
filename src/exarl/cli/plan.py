"""``exarl plan``: how fast a run would be on other ranks, and which layout to choose."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from typing import Any

from exarl.cli import words as line
from exarl.cli.advice import shown
from exarl.cli.quantities import series, take_counts, take_number, take_time
from exarl.cli.targets import check_target
from exarl.errors import ConfigError
from exarl.plan.costs import Costs, estimated_update, reduce_seconds
from exarl.plan.forecast import HOUR, WORKFLOWS, PlannedRun
from exarl.plan.measured import costs_of
from exarl.plan.picture import Scaling, draw
from exarl.plan.proposals import (
    BLOCKS,
    Allocation,
    Proposal,
    candidates,
    fits,
    judged,
    lag_in_updates,
    proposals,
    shortlist,
)
from exarl.records.directory import expand, reason

HELP = """\
usage: exarl plan [BENCH.json] --procs N [--total_steps N] [--key value ...]

Predicts speed, policy lag, idle time and core-hours of runs that have not been started, by simulating
them with a virtual clock, and proposes a layout. What things cost comes from a file that
'exarl bench --json' has printed, from the options below, or from both: the options have precedence.

  --procs N               ranks: 512, a list 64,128 or a range 1-100000
  --total_steps N         steps of the run (1,000,000)
  --deadline TIME         the run must end within this time: the cheapest such layout is best
  --core_hours H          the run may cost no more than this

What things cost; a TIME is 20ms, 30s or 2h:
  --step_time TIME        a step of one simulation
  --step_spread X         its standard deviation, as part of the mean (lognormal; 0)
  --stragglers PxF        a part P of the steps takes F times as long: 0.01x20
  --act_time TIME         the policy and the rollout, for each step of an actor (50us)
  --update_time TIME      an update, on one learner
  --weights N             of the network: estimates the update, and what learners exchange
  --batch_size N          for that estimate (64)
  --updates_per_step X    updates for each step (1, if updates have a time)
  --block_time TIME       what a learner needs for a block beside its updates (1ms)
  --reduce_time TIME      to average one gradient over learners
  --failure_rate X        failures of a simulation in an hour (0)
  --restart_time TIME     to start a simulation again (0)
  --start_time TIME       until the first step of the run (10s)

What may be chosen (names as in 'exarl train'; lists are tried in turn):
  --workflow W            async | sync | rma | elastic, or a list (async, or the file's)
  --learner_procs N       learners (default: as many as pay)
  --process_per_env N     ranks of a simulation (1)
  --parallel X            the part of a step that these ranks share, for a list of them (0 to 1)
  --block_steps N         steps in a block (8, 32 or 128, or the file's)
  --envs_per_actor N, --max_policy_lag N, --blocks_ahead N, --slots N
                          fixed, as given
  --cores_per_node N      for the Slurm line (64)

  --plot FILE.png         draw strong and weak scaling up to the largest number of ranks
  --json                  print JSON
  --seed N                of the simulation (0)
"""


def plan(words: list[str]) -> int:
    words = list(words)
    bench = line.take_path(words, "file") if words and not words[0].startswith("--") else None
    as_json, plot = line.take_flag(words, "json"), line.take(words, "plot")
    seed = line.take_count(words, "seed", 0, least=0)
    costs, like = read_bench(bench) if bench else (None, PlannedRun())
    costs = take_costs(words, costs)
    allocation = take_allocation(words, like, known=bench is not None)
    line.nothing_left(words)
    allocation = possible(allocation)
    path = None if plot is None else expand(plot)
    if path is not None:
        check_target(path)
    if (
        len(allocation.procs) > 1
        and allocation.deadline_s is None
        and allocation.core_hours is None
    ):
        found = [best_of(costs, allocation, procs, seed) for procs in allocation.procs]
    else:
        found = proposals(costs, allocation, seed)
    show = to_json if as_json else table
    sys.stdout.write(show(found, costs, allocation))
    if path is not None:
        scaling = scaled(costs, allocation, seed, found)
        draw(scaling, "Predicted scaling ('exarl plan')", assumptions(costs, allocation), path)
        if not as_json:
            sys.stdout.write(f"{path}: strong and weak scaling\n")
    return 0


def read_bench(name: str) -> tuple[Costs, PlannedRun]:
    """What was measured; ConfigError if the file cannot be read."""
    try:
        found = json.loads(expand(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else "it is not JSON"
        raise ConfigError(f"cannot read {name}: {why}; 'exarl bench --json' prints one") from error
    return costs_of(found)


def take_costs(words: list[str], measured: Costs | None) -> Costs:
    """The costs that were measured, with what the user states instead."""
    step_s = take_time(words, "step_time", 1e-9)
    if measured is None and step_s is None:
        raise ConfigError(
            "how long is a step? give --step_time 30s, or the output of 'exarl bench --json'"
        )
    costs = measured or Costs(step_s=step_s or 0.0)
    weights = line.take_count(words, "weights")
    batch = line.take_count(words, "batch_size", 64)
    slow, slowness = take_stragglers(words)
    given: dict[str, float | None] = {
        "step_s": step_s,
        "spread": take_number(words, "step_spread", 0, 100),
        "slow": slow,
        "slowness": slowness,
        "act_s": take_time(words, "act_time"),
        "update_s": take_time(words, "update_time"),
        "updates_per_step": take_number(words, "updates_per_step"),
        "block_s": take_time(words, "block_time"),
        "reduce_s": take_time(words, "reduce_time"),
        "failures_per_hour": take_number(words, "failure_rate"),
        "restart_s": take_time(words, "restart_time"),
        "start_s": take_time(words, "start_time"),
    }
    if weights is not None:
        estimates = {
            "update_s": estimated_update(weights, batch),
            "reduce_s": reduce_seconds(weights),
        }
        given |= {name: value for name, value in estimates.items() if given[name] is None}
    if given["updates_per_step"] is None and given["update_s"] and not costs.updates_per_step:
        given["updates_per_step"] = 1.0
    return dataclasses.replace(costs, **{n: v for n, v in given.items() if v is not None})


def take_stragglers(words: list[str]) -> tuple[float | None, float | None]:
    """The part of the steps that are slow, and how many times slower they are."""
    if (text := line.take(words, "stragglers")) is None:
        return None, None
    part, _, factor = text.partition("x")
    try:
        found = float(part), float(factor)
    except ValueError:
        found = math.nan, math.nan
    if not (0 <= found[0] <= 1 and 1 <= found[1] < math.inf):
        raise ConfigError(
            f"--stragglers is a part of the steps and a factor, 0.01x20, not '{text}' (command line)"
        )
    return found


def take_allocation(words: list[str], like: PlannedRun, known: bool) -> Allocation:
    """What may be chosen, and what is asked for."""
    procs = take_counts(words, "procs")
    if procs is None:
        raise ConfigError("how many ranks? give --procs 512, a list 64,128 or a range 1-100000")
    workflows = (line.take(words, "workflow") or (like.workflow if known else "async")).split(",")
    for workflow in workflows:
        line.check_choice(workflow, WORKFLOWS, f"plan does not know workflow '{workflow}'")
    run = dataclasses.replace(
        like,
        envs_per_actor=line.take_count(words, "envs_per_actor", like.envs_per_actor),
        max_policy_lag=line.take_count(words, "max_policy_lag", least=0),
        blocks_ahead=line.take_count(words, "blocks_ahead", like.blocks_ahead, least=0),
        slots=line.take_count(words, "slots", like.slots),
    )
    return Allocation(
        procs=procs,
        workflows=tuple(dict.fromkeys(workflows)),
        process_per_env=take_counts(words, "process_per_env") or (like.process_per_env,),
        learners=take_counts(words, "learner_procs"),
        block_steps=take_counts(words, "block_steps") or ((like.block_steps,) if known else BLOCKS),
        steps=take_number(words, "total_steps", 1) or 1e6,
        deadline_s=take_time(words, "deadline", 1e-3),
        core_hours=take_number(words, "core_hours", 1e-9),
        cores_per_node=line.take_count(words, "cores_per_node", 64),
        parallel=take_number(words, "parallel", 0, 1),
        measured_ranks=like.process_per_env if known else 1,
        like=run,
    )


def possible(allocation: Allocation) -> Allocation:
    """With the numbers of ranks that hold a run; ConfigError if none does."""
    if len(allocation.process_per_env) > 1 and allocation.parallel is None:
        raise ConfigError(
            "several --process_per_env need --parallel X, the part of a step that its ranks share"
        )
    if "sync" in allocation.workflows and allocation.like.max_policy_lag is not None:
        raise ConfigError(
            "max_policy_lag has no meaning in workflow 'sync'; omit it (command line)"
        )
    fitting = tuple(procs for procs in allocation.procs if candidates(allocation, procs))
    if not fitting:
        least = min(allocation.learners or (1,)) * (1 + min(allocation.process_per_env))
        raise ConfigError(
            f"--procs {max(allocation.procs)} is too few for learners and as many simulations;"
            f" {least} or more work (command line)"
        )
    return dataclasses.replace(allocation, procs=fitting)


def best_of(costs: Costs, allocation: Allocation, procs: int, seed: int) -> Proposal:
    """The best layout of one number of ranks."""
    return proposals(costs, dataclasses.replace(allocation, procs=(procs,)), seed, most=1)[0]


def scaled(costs: Costs, allocation: Allocation, seed: int, known: list[Proposal]) -> Scaling:
    """Predictions up to the largest number of ranks, with one learner and with as many as pay."""
    least = max(2, 1 + min(allocation.process_per_env))
    counts = [n for n in series(least, max(allocation.procs)) if candidates(allocation, n)]
    found = {proposal.run: proposal for proposal in known}

    def promising(count: int, allocation: Allocation) -> Proposal:
        run = shortlist(costs, allocation, count, 1)[0]
        if run not in found:
            found[run] = judged(costs, allocation, run, seed)
        return found[run]

    one = [promising(n, dataclasses.replace(allocation, learners=(1,))) for n in counts]
    best = [promising(n, allocation) for n in counts]
    return Scaling(one, best, allocation.steps)


def table(found: list[Proposal], costs: Costs, allocation: Allocation) -> str:
    """The proposals as a table of text, with the Slurm line of the best."""
    head = (
        f"{'workflow':<9}{'ranks':>8}{'learners':>9}{'actors':>8}{'each':>5}{'block':>6}{'steps/s':>11}"
        f"{'hours':>9}{'core-h':>11}{'lag mean':>11}{'max':>11}{'idle':>6}{'busy':>6}  bound by\n"
    )
    rows = "".join(row(proposal, fits(proposal, allocation)) for proposal in found)
    best = found[-1] if aimless(allocation) else found[0]
    text = f"{about(costs)}\n{allocation.steps:,.0f} steps\n\n{head}{rows}"
    if not fits(best, allocation):
        text += "\nno layout keeps the deadline and the core-hours; the nearest is above\n"
    return text + f"\n{slurm_line(best, allocation)}\n"


def aimless(allocation: Allocation) -> bool:
    """Whether rows are numbers of ranks, and not the best first."""
    return (
        len(allocation.procs) > 1
        and allocation.deadline_s is None
        and allocation.core_hours is None
    )


def row(proposal: Proposal, fitting: bool) -> str:
    run, forecast = proposal.run, proposal.forecast
    lag = lag_in_updates(forecast)
    most = forecast.lag_max * forecast.updates_per_version
    return (
        f"{run.workflow if not run.alone else 'alone':<9}{run.ranks:>8,}{run.learners:>9}"
        f"{run.actors:>8,}{run.process_per_env:>5}{run.block_steps:>6}"
        f"{shown(forecast.steps_per_s):>11}{shown(proposal.seconds / HOUR):>9}"
        f"{shown(proposal.core_hours):>11}{lag:>11,.0f}{most:>11,.0f}"
        f"{forecast.actor_idle:>6.0%}{forecast.learner_busy:>6.0%}  {forecast.bound}"
        f"{'' if fitting else ' (too late or too dear)'}\n"
    )


def slurm_line(proposal: Proposal, allocation: Allocation) -> str:
    """The job of a proposal, for ``exarl slurm``. Its time limit has a fifth to spare."""
    run = proposal.run
    minutes = math.ceil(1.2 * proposal.seconds / 60) + 2
    limit = f"{minutes // 60 % 24:02}:{minutes % 60:02}:00"
    if minutes >= 1440:
        limit = f"{minutes // 1440}-{limit}"
    options = [f"--nodes {proposal.nodes}", f"--ntasks-per-node {proposal.tasks_per_node}"]
    workflow = "sync" if run.alone else run.workflow
    if workflow == "elastic":
        options = [f"--nodes {proposal.nodes}"]
    command = [f"--workflow {workflow}", f"--block_steps {run.block_steps}"]
    fixed = {"learner_procs": 1, "process_per_env": 1, "envs_per_actor": 1}
    command += [
        f"--{name} {value}"
        for name, usual in fixed.items()
        if (value := getattr(run, name.replace("learner_procs", "learners"))) != usual
    ]
    if run.max_policy_lag is not None:
        command.append(f"--max_policy_lag {run.max_policy_lag}")
    if workflow in ("async", "elastic") and run.blocks_ahead != PlannedRun.blocks_ahead:
        command.append(f"--blocks_ahead {run.blocks_ahead}")
    if workflow == "rma" and run.slots != PlannedRun.slots:
        command.append(f"--slots {run.slots}")
    steps = f"--total_steps {math.ceil(allocation.steps)}"
    words = " ".join([*options, f"--time {limit}", "-- train", *command, steps])
    return f"exarl slurm {words} --env ..."


def about(costs: Costs) -> str:
    """The costs in one line."""
    parts = [f"a step {span(costs.step_s)}"]
    if costs.spread:
        parts[0] += f" ± {costs.spread:.0%}"
    if costs.slow:
        parts.append(f"{costs.slow:.2%} of the steps {costs.slowness:g} times as long")
    parts.append(f"acting {span(costs.act_s)}")
    if costs.updates_per_step:
        parts.append(f"{costs.updates_per_step:.3g} updates a step of {span(costs.update_s)}")
        parts.append(f"averaged in {span(costs.reduce_s)}")
    parts.append(f"{span(costs.block_s)} a block")
    if costs.failures_per_hour:
        failing = f"{costs.failures_per_hour:g} failures an hour, {span(costs.restart_s)} each"
        parts.append(failing)
    return "; ".join(parts)


def assumptions(costs: Costs, allocation: Allocation) -> str:
    """What a picture takes for granted."""
    blocks = ", ".join(map(str, allocation.block_steps))
    return (
        f"Assumed: {about(costs)}. Workflow {', '.join(allocation.workflows)}; blocks of {blocks}"
        f" steps; {', '.join(map(str, allocation.process_per_env))} ranks per simulation;"
        f" {allocation.like.envs_per_actor} environments per actor; a start of {span(costs.start_s)}."
        " Every learner has the cores it was measured with, the file system and the network are never"
        " the bound, and every update divides its batch among all learners."
    )


def span(seconds: float) -> str:
    """``14 us``, ``3.2 ms`` or ``1.5 s``."""
    for unit, name in ((1e-6, "us"), (1e-3, "ms")):
        if seconds < 1000 * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"


def to_json(found: list[Proposal], costs: Costs, allocation: Allocation) -> str:
    rows: list[dict[str, Any]] = [
        {
            **dataclasses.asdict(p.run),
            "ranks": p.run.ranks,
            **dataclasses.asdict(p.forecast),
            "lag_updates_mean": lag_in_updates(p.forecast),
            "seconds": p.seconds,
            "core_hours": p.core_hours,
            "fits": fits(p, allocation),
            "slurm": slurm_line(p, allocation),
        }
        for p in found
    ]
    whole = {"costs": dataclasses.asdict(costs), "total_steps": allocation.steps, "layouts": rows}
    return json.dumps(whole, indent=2) + "\n"
