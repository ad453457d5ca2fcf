"""Which layouts to try for an allocation, and which of them to propose."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from exarl.plan.costs import Costs
from exarl.plan.forecast import Forecast, PlannedRun, rate_bound
from exarl.plan.simulation import simulate

EQUAL = 0.97
"""Layouts at least this fast, relative to the fastest, are as fast as it."""
WORTHWHILE = 1.1
"""The smallest factor of speed for which the number of learners is doubled."""
MOST_LEARNERS = 64
BLOCKS = (8, 32, 128)
"""Block lengths that are tried unless the user names one."""


@dataclass(frozen=True)
class Allocation:
    """What may be chosen; ``steps`` is the aim of the run."""

    procs: tuple[int, ...]
    workflows: tuple[str, ...] = ("async",)
    process_per_env: tuple[int, ...] = (1,)
    learners: tuple[int, ...] | None = None  # None: what pays
    block_steps: tuple[int, ...] = BLOCKS
    steps: float = 1e6
    deadline_s: float | None = None
    core_hours: float | None = None
    cores_per_node: int = 64
    parallel: float | None = None  # the part of a simulation that its ranks share (Amdahl)
    measured_ranks: int = 1  # with which the step time was found
    like: PlannedRun = field(default_factory=PlannedRun)  # what is not chosen


@dataclass(frozen=True)
class Proposal:
    """A layout with its prediction."""

    run: PlannedRun
    nodes: int
    forecast: Forecast
    costs: Costs
    seconds: float
    core_hours: float

    @property
    def tasks_per_node(self) -> int:
        return self.run.ranks // self.nodes


def proposals(costs: Costs, allocation: Allocation, seed: int = 0, most: int = 5) -> list[Proposal]:
    """The best layouts, best first: those that keep deadline and budget, then the others.

    Without a deadline the fastest is best, with one the one that costs least; of those equally good
    the one with the smallest lag.
    """
    found = [
        judged(costs, allocation, run, seed)
        for procs in allocation.procs
        for run in shortlist(costs, allocation, procs, most if len(allocation.procs) == 1 else 2)
    ]
    fitting = [p for p in found if fits(p, allocation)]
    if allocation.deadline_s is not None and len(allocation.procs) > 1:
        found += fewer(costs, allocation, seed, found)
        fitting = [p for p in found if fits(p, allocation)]
    return [
        *ranked(fitting, allocation),
        *ranked([p for p in found if p not in fitting], allocation),
    ][:most]


def fewer(
    costs: Costs, allocation: Allocation, seed: int, found: Sequence[Proposal]
) -> list[Proposal]:
    """Layouts of fewer ranks than the smallest that keeps the deadline, found by bisection."""
    enough = min((p.run.ranks for p in found if fits(p, allocation)), default=0)
    below = max((p.run.ranks for p in found if p.run.ranks < enough), default=0)
    more: list[Proposal] = []
    while below and enough - below > max(1, enough // 20):
        procs = (below + enough) // 2
        tried = [
            judged(costs, allocation, run, seed) for run in shortlist(costs, allocation, procs, 1)
        ]
        more += tried
        if any(fits(p, allocation) for p in tried):
            enough = procs
        else:
            below = procs
    return more


def fits(proposal: Proposal, allocation: Allocation) -> bool:
    """Whether a proposal keeps the deadline and the budget."""
    late = allocation.deadline_s is not None and proposal.seconds > allocation.deadline_s
    dear = allocation.core_hours is not None and proposal.core_hours > allocation.core_hours
    return not late and not dear


def ranked(found: Sequence[Proposal], allocation: Allocation) -> list[Proposal]:
    """The best first."""
    left, order = list(found), []
    cheapest = allocation.deadline_s is not None

    def price(proposal: Proposal) -> float:
        return proposal.core_hours if cheapest else proposal.seconds

    def preference(proposal: Proposal) -> tuple[float, ...]:
        run = proposal.run
        return run.ranks, run.learners, lag_in_updates(proposal.forecast), price(proposal)

    while left:
        least = min(map(price, left))
        equal = [p for p in left if price(p) * EQUAL <= least]
        best = min(equal, key=preference)
        order.append(best)
        left.remove(best)
    return order


def lag_in_updates(forecast: Forecast) -> float:
    return forecast.lag_mean * max(forecast.updates_per_version, 1e-9)


def judged(costs: Costs, allocation: Allocation, run: PlannedRun, seed: int) -> Proposal:
    """A layout with its prediction."""
    own = costs_with(costs, allocation, run.process_per_env)
    forecast = simulate(own, run, seed)
    return Proposal(
        run,
        nodes_of(run.ranks, allocation.cores_per_node),
        forecast,
        own,
        forecast.seconds(run, own, allocation.steps),
        forecast.core_hours(run, own, allocation.steps),
    )


def shortlist(costs: Costs, allocation: Allocation, procs: int, most: int) -> list[PlannedRun]:
    """The layouts of ``procs`` ranks that promise most, by the bounds that need no simulation."""
    found: list[tuple[float, int, int, PlannedRun]] = []
    for run in candidates(allocation, procs):
        own = costs_with(costs, allocation, run.process_per_env)
        if allocation.learners is not None or pays(own, run):
            promise = float(f"{rate_bound(own, run):.2e}")  # what differs by less is equal
            found.append((-promise, run.learners, run.block_steps, run))
    return [run for *_, run in sorted(found, key=lambda entry: entry[:3])[:most]]


def pays(costs: Costs, run: PlannedRun) -> bool:
    """Whether the run is faster by a factor of ``WORTHWHILE`` than with half of its learners, and that
    one than with half of these, down to one learner."""
    if run.learners == 1:
        return True
    half = dataclasses.replace(run, learners=run.learners // 2)
    return rate_bound(costs, run) >= WORTHWHILE * rate_bound(costs, half) and pays(costs, half)


def candidates(allocation: Allocation, procs: int) -> list[PlannedRun]:
    """Every layout of at most ``procs`` ranks that fills its nodes evenly."""
    like = allocation.like
    if procs == 1:
        if 1 not in allocation.process_per_env or 1 not in (allocation.learners or (1,)):
            return []
        alone = dataclasses.replace(like, actors=1, learners=1, process_per_env=1, alone=True)
        return [dataclasses.replace(alone, block_steps=steps) for steps in allocation.block_steps]
    found: list[PlannedRun] = []
    for workflow in allocation.workflows:
        for each in allocation.process_per_env:
            for learners in (1,) if workflow == "sync" else learner_counts(allocation, procs, each):
                actors = filling(procs, learners, each, allocation.cores_per_node)
                if actors < learners:
                    continue
                counts = {"actors": actors, "learners": learners, "process_per_env": each}
                run = dataclasses.replace(like, workflow=workflow, alone=False, **counts)  # type: ignore[arg-type]
                found += [dataclasses.replace(run, block_steps=n) for n in allocation.block_steps]
    return found


def learner_counts(allocation: Allocation, procs: int, each: int) -> Sequence[int]:
    """One learner and every power of two that leaves at least as many actors."""
    if allocation.learners is not None:
        return allocation.learners
    most = min(MOST_LEARNERS, procs // (each + 1))
    return [1, *(2**k for k in range(1, 20) if 2**k <= most)]


def filling(procs: int, learners: int, each: int, cores_per_node: int) -> int:
    """The most actors whose ranks, with the learners', are the same number on every node; 0: none."""
    for actors in range((procs - learners) // each, 0, -1):
        ranks = learners + actors * each
        nodes = nodes_of(ranks, cores_per_node)
        if ranks // nodes * nodes == ranks:
            return actors
    return 0


def nodes_of(ranks: int, cores_per_node: int) -> int:
    """The fewest nodes that hold ``ranks`` ranks, one on each core."""
    return -(-ranks // cores_per_node)


def costs_with(costs: Costs, allocation: Allocation, each: int) -> Costs:
    """The costs with ``each`` ranks in a simulation, by Amdahl's law from those measured."""
    if allocation.parallel is None or each == allocation.measured_ranks:
        return costs
    part = allocation.parallel
    ratio = (1 - part + part / each) / (1 - part + part / allocation.measured_ranks)
    return dataclasses.replace(costs, step_s=costs.step_s * ratio)
