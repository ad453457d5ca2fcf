"""Costs from what ``exarl bench --json`` has measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from exarl.errors import ConfigError
from exarl.plan.costs import DECODE_S, Costs, reduce_seconds, round_seconds
from exarl.plan.forecast import PlannedRun

BLOCK_S = 1e-3
"""Seconds that a learner takes for a block beside its updates, where that was not measured."""
_NORMAL_99 = 2.326
"""The 99th percentile of a standard normal distribution."""
WORKED = 0.1
"""A side that waits for less than this part of its time was measured at full speed."""

MOSTLY = 4.0
"""How many times as long as its updates alone the training on a block may take, for updates to be most
of it."""


def costs_of(bench: Mapping[str, Any]) -> tuple[Costs, PlannedRun]:
    """The costs, and the run that was measured; ConfigError if these are not numbers of a bench."""
    try:
        return _costs_of(bench)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
        raise ConfigError(
            f"not the output of 'exarl bench --json': {type(error).__name__} {error}"
        ) from error


def _costs_of(bench: Mapping[str, Any]) -> tuple[Costs, PlannedRun]:
    environment, acting, learning = (bench[n] for n in ("environment", "acting", "learning"))
    run = run_of(bench)
    step_s, act_s = 1 / environment["steps_per_s"], acting["call_us"] / 1e6
    per_step = update_s = 0.0
    if learning is not None:
        per_step = learning["updates_per_s"] / learning["steps_per_s"]
        update_s = learning["update_us"] / 1e6
    weights = int(learning.get("weights", 0)) if learning is not None else 0
    costs = Costs(
        step_s=step_s,
        spread=environment.get("spread", _spread(environment)),
        act_s=act_s,
        update_s=update_s,
        updates_per_step=per_step,
        block_s=BLOCK_S,
        reduce_s=reduce_seconds(weights),
    )
    return _as_trained(costs, run, bench), run


def run_of(bench: Mapping[str, Any]) -> PlannedRun:
    """The run that was measured."""
    procs = int(bench["procs"])
    learners, each = int(bench.get("learner_procs", 1)), int(bench.get("process_per_env", 1))
    return PlannedRun(
        workflow=str(bench["workflow"]),
        actors=max(1, (procs - learners) // each),
        learners=learners,
        process_per_env=each,
        envs_per_actor=int(bench["envs_per_actor"]),
        block_steps=int(bench["block_steps"]),
        alone=procs == 1,
    )


def _as_trained(costs: Costs, run: PlannedRun, bench: Mapping[str, Any]) -> Costs:
    """Correct the costs by the speed of the whole run, for the side that worked without waiting."""
    training = bench["training"]
    if training is None or training.get("whole"):
        return costs
    steps_per_s = training["steps_per_s"]
    learns = costs.updates_per_step * costs.update_s
    if run.alone:
        left = run.steps / steps_per_s - run.steps * (costs.step_s + learns)
        each = (left - costs.block_s - DECODE_S) / run.block_steps
        return replace(costs, act_s=max(costs.act_s, each))
    if run.workflow == "sync":
        return costs
    split = bench["time_split"]
    learner, actors = split["learner"], split["actors"]
    began = learner.get("start", 0.0) + learner.get("compile", 0.0)
    after = max(1 - began, 1e-9)
    busy = (
        1 - learner.get("wait", 0.0) / after
    )  # and so are these parts of the time after the start
    idle = max(0.0, actors.get("wait", 0.0) + actors.get("send", 0.0) - began) / after
    if run.learners > 1:
        costs = replace(costs, skew=0.0)  # which is part of what was measured
        return replace(costs, reduce_s=_averaging(costs, run, busy / steps_per_s))
    beside = learner.get("learn", 0.0) / after / steps_per_s
    if beside < MOSTLY * learns:  # mostly updates, which take longer beside the other ranks
        costs = replace(costs, update_s=costs.update_s * max(1.0, beside / max(learns, 1e-12)))
        learns = max(learns, beside)
    block_s = busy * run.steps / steps_per_s - run.steps * learns - DECODE_S
    costs = replace(costs, block_s=max(0.0, block_s))
    if idle < WORKED:
        left = run.actors * run.envs_per_actor / steps_per_s - run.envs_per_actor * costs.step_s
        costs = replace(costs, act_s=max(costs.act_s, left))
    return costs


def _averaging(costs: Costs, run: PlannedRun, learning_s: float) -> float:
    """What averaging takes, if each learner works for ``learning_s`` for each step of the run."""
    steps = run.learners * run.steps
    without = round_seconds(replace(costs, reduce_s=0.0), run.learners, run.learners, steps)
    one = round_seconds(replace(costs, reduce_s=1.0), run.learners, run.learners, steps) - without
    return max(0.0, learning_s * steps - without) / one if one else costs.reduce_s


def _spread(environment: Mapping[str, float]) -> float:
    """The coefficient of variation of a lognormal step with this median and 99th percentile."""
    ratio = environment["p99_us"] / max(environment["median_us"], 1e-9)
    sigma = math.log(max(ratio, 1.0)) / _NORMAL_99
    return math.sqrt(math.expm1(min(sigma**2, 50.0)))
