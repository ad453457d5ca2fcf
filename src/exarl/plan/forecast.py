"""A run that is planned, what it is predicted to do, and the bounds that follow without simulating."""

from __future__ import annotations

import math
from dataclasses import dataclass

from exarl.plan.costs import Costs, round_seconds

HOUR = 3600.0
MOST_LOSSES = 30.0
"""Failures in the time of a block up to which the block is repeated until none comes."""
WORKFLOWS = ("sync", "async", "rma", "elastic")


@dataclass(frozen=True)
class PlannedRun:
    """The parameters of a run on which its speed depends, named as ``exarl train`` names them."""

    workflow: str = "async"
    actors: int = 1
    learners: int = 1
    process_per_env: int = 1
    envs_per_actor: int = 1
    block_steps: int = 32
    max_policy_lag: int | None = None
    blocks_ahead: int = 1
    slots: int = 4
    alone: bool = False  # one process learns and acts in turns

    @property
    def ranks(self) -> int:
        return 1 if self.alone else self.learners + self.actors * self.process_per_env

    @property
    def steps(self) -> int:
        """Steps in a block of all environments of an actor."""
        return self.block_steps * self.envs_per_actor


@dataclass(frozen=True)
class Forecast:
    """What a run is predicted to do once it has started. Lags are in versions of the weights."""

    steps_per_s: float
    updates_per_s: float
    lag_mean: float
    lag_max: int
    updates_per_version: float
    actor_idle: float
    learner_busy: float
    bound: str

    def seconds(self, run: PlannedRun, costs: Costs, steps: float) -> float:
        """Until a run has taken this many steps, its start included; at least one block."""
        return costs.start_s + max(steps / self.steps_per_s, block_mean(costs, run))

    def core_hours(self, run: PlannedRun, costs: Costs, steps: float) -> float:
        return run.ranks * self.seconds(run, costs, steps) / HOUR


def block_mean(costs: Costs, run: PlannedRun) -> float:
    """The mean seconds of a block on its actor, failures included."""
    work = run.block_steps * (run.envs_per_actor * costs.step_s + costs.act_s)
    rate = costs.failures_per_hour / HOUR * run.envs_per_actor
    if not rate:
        return work
    if run.workflow == "elastic":  # the block begins again: the mean time until ``work`` survives
        losses = math.expm1(min(rate * work, MOST_LOSSES))
        return losses / rate + losses * costs.restart_s
    return work * (1 + rate * (costs.restart_s + costs.step_s))


def acting_rate(costs: Costs, run: PlannedRun) -> float:
    """Steps in a second of actors that never wait."""
    return run.actors * run.steps / block_mean(costs, run)


def learning_rate(costs: Costs, run: PlannedRun) -> float:
    """Steps in a second of learners that never wait."""
    steps = run.learners * run.steps
    return steps / round_seconds(costs, run.learners, run.learners, steps)


def rate_bound(costs: Costs, run: PlannedRun) -> float:
    """The steps in a second that no simulation of the run exceeds by much: the slower side's."""
    acting = acting_rate(costs, run)
    if run.alone or run.workflow == "sync":
        steps = run.actors * run.steps
        return 1 / (1 / acting + round_seconds(costs, 1, run.actors, steps) / steps)
    return min(acting, learning_rate(costs, run))


def bound_of(costs: Costs, run: PlannedRun, idle: float, busy: float) -> str:
    """What bounds a run: its learners, its simulations, or what they wait for."""
    if busy > 0.9:
        return "learners" if run.learners > 1 else "learner"
    rate = costs.failures_per_hour / HOUR * run.envs_per_actor
    lost = 1 - run.block_steps * run.envs_per_actor * costs.step_s / block_mean(costs, run)
    if rate and lost > 0.3:
        return "failures"
    if run.workflow == "sync" and idle > 0.1:
        return "slowest actor" if idle - busy > 0.1 else "learner in turns"
    if idle > 0.1:
        if run.max_policy_lag is not None:
            return "lag bound"
        return "queue limits"
    return "simulations"
