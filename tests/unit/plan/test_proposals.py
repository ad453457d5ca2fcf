"""Layouts that are proposed fit, keep what was asked for, and have learners that pay."""

from __future__ import annotations

import dataclasses

import pytest

from exarl.comm.layout import plan_layout
from exarl.plan.costs import Costs, reduce_seconds, team_factor, update_seconds
from exarl.plan.forecast import PlannedRun, acting_rate, block_mean, rate_bound
from exarl.plan.proposals import (
    Allocation,
    candidates,
    costs_with,
    fits,
    pays,
    proposals,
    shortlist,
)
from exarl.plan.simulation import simulate

SLOW = Costs(step_s=30.0, update_s=0.002, updates_per_step=0.1)
HEAVY = Costs(step_s=0.01, update_s=0.5, updates_per_step=0.1, reduce_s=0.001)


@pytest.mark.parametrize("procs", [1, 2, 5, 63, 64, 65, 127, 1000, 100_000])
@pytest.mark.parametrize("each", [1, 4])
def test_candidates_are_layouts_of_real_runs_on_full_nodes(procs: int, each: int) -> None:
    found = candidates(Allocation((procs,), process_per_env=(each,)), procs)
    assert bool(found) == (procs > each or procs == each == 1)
    for run in found:
        assert run.ranks <= procs
        nodes = -(-run.ranks // 64)
        assert run.ranks % nodes == 0
        layout = plan_layout(run.ranks, run.learners, run.process_per_env)
        assert layout.actors == run.actors >= run.learners


@pytest.mark.parametrize("procs", [65, 1000, 99_999])
def test_hardly_a_rank_is_wasted(procs: int) -> None:
    best = shortlist(SLOW, Allocation((procs,)), procs, 1)[0]
    assert best.ranks > procs - 1 - procs // 64


def test_learners_are_added_while_they_pay() -> None:
    few = proposals(SLOW, Allocation((128,)), most=1)[0]
    assert few.run.learners == 1
    many = proposals(HEAVY, Allocation((128,)), most=1)[0]
    assert many.run.learners > 8
    run = dataclasses.replace(many.run, learners=1)
    assert pays(HEAVY, dataclasses.replace(run, learners=2))
    assert not pays(dataclasses.replace(HEAVY, reduce_s=0.5), dataclasses.replace(run, learners=2))


def test_the_named_number_of_learners_is_kept() -> None:
    found = proposals(SLOW, Allocation((128,), learners=(4,)))
    assert {p.run.learners for p in found} == {4}


def test_a_deadline_takes_the_cheapest_layout_and_hardly_more_ranks_than_it_needs() -> None:
    allocation = Allocation((2, 20, 200, 2000), steps=1e5, deadline_s=36_000, block_steps=(8,))
    best = proposals(SLOW, allocation)[0]
    assert fits(best, allocation)
    assert best.seconds <= 36_000
    needed = 1e5 * 30.0 / 36_000
    assert needed < best.run.ranks < 1.2 * needed


def test_a_budget_is_kept_and_what_exceeds_it_comes_last() -> None:
    allocation = Allocation((2, 20, 200), steps=1e4, core_hours=90.0, block_steps=(8,))
    found = proposals(SLOW, allocation)
    assert fits(found[0], allocation)
    kept = [fits(p, allocation) for p in found]
    assert kept == sorted(kept, reverse=True)
    assert found[0].seconds == min(p.seconds for p in found if fits(p, allocation))


def test_a_simulation_on_more_ranks_is_as_much_faster_as_amdahl_allows() -> None:
    allocation = Allocation((64,), process_per_env=(1, 4), parallel=0.8, measured_ranks=1)
    assert costs_with(SLOW, allocation, 4).step_s == pytest.approx(30.0 * (0.2 + 0.8 / 4))
    assert costs_with(SLOW, allocation, 1) == SLOW


@pytest.mark.parametrize("costs", [SLOW, HEAVY])
@pytest.mark.parametrize("learners", [1, 4])
def test_the_bound_without_a_simulation_is_kept_by_it(costs: Costs, learners: int) -> None:
    run = PlannedRun("async", actors=16, learners=learners)
    rate = simulate(costs, run).steps_per_s
    assert 0.9 * rate_bound(costs, run) <= rate <= 1.02 * rate_bound(costs, run)


def test_time_and_core_hours_of_a_run() -> None:
    run = PlannedRun("async", actors=4, process_per_env=2)
    found = simulate(SLOW, run)
    seconds = found.seconds(run, SLOW, 1e4)
    assert seconds == pytest.approx(SLOW.start_s + 1e4 / acting_rate(SLOW, run), rel=0.05)
    assert found.core_hours(run, SLOW, 1e4) == pytest.approx(9 * seconds / 3600)
    assert found.seconds(run, SLOW, 1) == SLOW.start_s + block_mean(SLOW, run)


def test_a_team_that_shares_cores_gains_less_than_one_that_brings_its_own() -> None:
    apart, shared = (team_factor(0.1, 10_000, 1, 2, cores) for cores in (None, 4))
    assert 0.5 < apart < 0.6 < shared
    assert team_factor(1e-4, 10_000, 1, 2, None) > 1


def test_a_team_of_two_follows_from_what_was_measured_of_it() -> None:
    reduce_s = reduce_seconds(10_000)
    two, three = (update_seconds(0.1, n, reduce_s) for n in (2, 3))
    assert team_factor(two, 10_000, 2, 3, None) == pytest.approx(three / two)
