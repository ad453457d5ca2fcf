"""A run with a virtual clock: events of actors and learners, paced by the rules of real runs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from exarl.comm.waiting import pause
from exarl.plan.costs import Costs, round_seconds
from exarl.plan.forecast import HOUR, MOST_LOSSES, Forecast, PlannedRun, bound_of
from exarl.plan.lagging import Lagging

EXACT = 256
"""Steps of a block up to which each is drawn; the sum of more has the same mean and variance."""
_CHUNK = 1 << 20


def simulate(costs: Costs, run: PlannedRun, seed: int = 0) -> Forecast:
    """Predict a run in its steady state. The same seed gives the same prediction."""
    rng = np.random.default_rng(seed)
    if run.alone or run.workflow == "sync":
        return _in_turns(costs, run, rng)
    return _lagging(costs, run, rng, seed)


def _lagging(costs: Costs, run: PlannedRun, rng: np.random.Generator, seed: int) -> Forecast:
    """Actors that go on while learners learn."""
    found = Lagging(costs, run, blocks(costs, run, rng), seed).run(*_lengths(run))
    seconds = max(found.seconds, 1e-12)
    steps = found.blocks * run.steps
    idle = min(1.0, max(0.0, found.idle / (seconds * run.actors)))
    busy = min(1.0, found.busy / seconds)
    return Forecast(
        steps / seconds,
        costs.updates_per_step * steps / seconds,
        found.lags / found.blocks,
        found.lag_max,
        costs.updates_per_step * steps / found.rounds,
        idle,
        busy,
        bound_of(costs, run, idle, busy),
    )


def _lengths(run: PlannedRun) -> tuple[int, int]:
    """Blocks to simulate before the steady state and in it: whole numbers for each actor."""
    each = math.ceil(600 / run.actors)
    return 2 * each * run.actors, each * run.actors


def _in_turns(costs: Costs, run: PlannedRun, rng: np.random.Generator) -> Forecast:
    """Actors that wait for the learner and for each other, or one process that is both."""
    rounds = max(20, min(1000, 4000 // run.actors))
    found = blocks(costs, run, rng)
    steps = run.actors * run.steps
    learning = round_seconds(costs, 1, run.actors, steps)
    acting, whole = 0.0, 0.0
    for _ in range(rounds):
        times = [next(found) for _ in range(run.actors)]
        longest = max(times)
        acting += sum(times) / run.actors
        whole += longest + learning
        if not run.alone:
            whole += 2 * costs.send_s + noticed(learning) + noticed(longest)
    rate, busy = rounds * steps / whole, rounds * learning / whole
    idle = 0.0 if run.alone else 1 - acting / whole
    updates = costs.updates_per_step
    bound = bound_of(costs, run, idle, busy)
    if run.alone:
        bound = "learner in turns" if busy > 0.5 else "simulations"
    return Forecast(rate, updates * rate, 0.0, 0, updates * steps, idle, busy, bound)


def noticed(waited: float) -> float:
    """How much later than it happens a process that has waited notices an event, in the mean."""
    return pause(waited) / 2


def blocks(costs: Costs, run: PlannedRun, rng: np.random.Generator) -> Iterator[float]:
    """The seconds of one block after another, endlessly."""
    count = max(16, min(_CHUNK // max(1, min(run.steps, EXACT)), 16384))
    fixed = run.block_steps * costs.act_s
    while True:
        times = fixed + steps_seconds(costs, run.steps, count, rng)
        yield from with_failures(costs, run, times, rng).tolist()


def steps_seconds(costs: Costs, steps: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """``count`` sums of the times of ``steps`` steps."""
    usual = costs.step_s / (1 + costs.slow * (costs.slowness - 1))
    square = usual**2 * (1 + costs.spread**2) * (1 + costs.slow * (costs.slowness**2 - 1))
    spread = math.sqrt(max(0.0, square / costs.step_s**2 - 1)) if costs.step_s else 0.0
    if not spread:
        return np.full(count, steps * costs.step_s)
    if steps > EXACT:
        return steps * costs.step_s * lognormal(spread / math.sqrt(steps), count, rng)
    times = usual * lognormal(costs.spread, (count, steps), rng)
    if costs.slow:
        times = np.where(rng.random(times.shape) < costs.slow, costs.slowness * times, times)
    return times.sum(axis=1)


def lognormal(spread: float, shape: int | tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Numbers with mean 1 and this coefficient of variation."""
    sigma = math.sqrt(math.log1p(spread**2))
    return rng.lognormal(-(sigma**2) / 2, sigma, shape)


def with_failures(
    costs: Costs, run: PlannedRun, times: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The times of blocks whose simulations fail now and then."""
    rate = costs.failures_per_hour / HOUR * run.envs_per_actor
    if not rate:
        return times
    if run.workflow != "elastic":
        return times + rng.poisson(rate * times) * (costs.restart_s + costs.step_s)
    # An actor is lost with its block, so the block begins again until it is not.
    failures = np.minimum(rate * times, MOST_LOSSES)
    lost = rng.geometric(np.exp(-failures)) - 1
    mean = 1 / rate - times / np.expm1(failures)  # of a block that is lost
    return times + lost * (mean + costs.restart_s)
