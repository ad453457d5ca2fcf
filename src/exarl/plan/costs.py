"""What the parts of a run cost, and how updates are shared by learners. Pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass

DECODE_S = 0.1e-3
"""Seconds that a learner takes to read one actor's block."""
TEAM_S = 0.3e-3
"""Seconds by which an update takes longer in a team: gradients leave the device and come back."""
LATENCY_S = 0.1e-3
"""Seconds of a message between two learners."""
BANDWIDTH = 2e9
"""Bytes that a learner sends or receives in a second."""
SKEW = 0.1
"""The ``skew`` of learners whose averages were not measured."""
FLOPS = 50e9
"""Operations in a second of one core in the products of a network's layers."""
DISPATCH_S = 50e-6
"""Seconds of an update of a network without weights."""
THREADED = 0.93
"""The part of a large update that is divided among the cores of its learner."""


@dataclass(frozen=True)
class Costs:
    """Seconds, each on one rank or one simulation, and how they vary.

    A step's time is lognormal with the coefficient of variation ``spread``; the fraction ``slow`` of
    the steps takes ``slowness`` times as long. ``step_s`` is the mean with both. A simulation that
    fails (``failures_per_hour``) repeats its step after ``restart_s``, or, in ``elastic``, its actor
    is lost with its block. ``update_s`` and ``block_s`` (what a block costs its learner apart from
    updates) are those of a learner alone; ``reduce_s`` averages one gradient between two learners.
    """

    step_s: float
    spread: float = 0.0
    slow: float = 0.0
    slowness: float = 1.0
    act_s: float = 50e-6  # for all environments of an actor, with what a rollout does for a step
    update_s: float = 0.0
    updates_per_step: float = 0.0
    block_s: float = 1e-3
    reduce_s: float = TEAM_S
    skew: float = SKEW  # the part of an update by which learners wait for the slowest of them
    send_s: float = 0.1e-3
    failures_per_hour: float = 0.0
    restart_s: float = 0.0
    start_s: float = 10.0


def reduce_seconds(weights: int) -> float:
    """To average a gradient of this many numbers between two learners, and what belongs to it."""
    return TEAM_S + LATENCY_S + 4 * weights / BANDWIDTH


def update_seconds(alone: float, learners: int, reduce_s: float, skew: float = SKEW) -> float:
    """An update of which each of ``learners`` computes its share of the batch. Every doubling of their
    number makes the average longer by half of what it takes between two."""
    if learners < 2:
        return alone
    return (1 + skew) * alone / learners + reduce_s * (1 + math.log2(learners)) / 2


def estimated_update(weights: int, batch: int) -> float:
    """An update on one core: a forward pass and two backward ones, two operations a weight each."""
    return DISPATCH_S + 6.0 * weights * batch / FLOPS


def on_cores(alone: float, cores: int) -> float:
    """An update that takes ``alone`` on one core, by Amdahl's law on several."""
    return alone * (1 - THREADED + THREADED / max(cores, 1))


def team_factor(
    update_s: float, weights: int, learners: int, more: int, cores: int | None
) -> float:
    """How many times as long an update takes with ``more`` learners, if it takes ``update_s`` with
    ``learners``. ``cores`` are those of all learners together; None: each brings its own."""
    reduce_s = reduce_seconds(weights)
    alone = update_s
    if learners > 1:
        overhead = update_seconds(0.0, learners, reduce_s)
        alone = max(0.0, update_s - overhead) * learners / (1 + SKEW)
    if cores is not None:
        alone *= on_cores(1.0, cores // more) / on_cores(1.0, cores // learners)
    return update_seconds(alone, more, reduce_s) / max(update_s, 1e-9)


def round_seconds(costs: Costs, learners: int, blocks: int, steps: int) -> float:
    """A round in which ``learners`` train together on ``blocks`` with ``steps`` in all.

    Each makes all of the updates, with its share of the batch.
    """
    updates = costs.updates_per_step * steps
    each = update_seconds(costs.update_s, learners, costs.reduce_s, costs.skew)
    return costs.block_s + DECODE_S * math.ceil(blocks / learners) + updates * each
