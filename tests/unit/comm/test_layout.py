"""Ranks and roles: every rank has exactly one, and a refusal names counts that work."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exarl.comm.layout import Layout, Role, plan_layout
from exarl.errors import ConfigError

LEARNERS, GROUP = st.integers(1, 6), st.integers(1, 9)
WORLDS = st.integers(1, 60) | st.integers(1, 200_000)


def accepted(world: int, learners: int, group: int) -> bool:
    """By the rule in words: one rank alone, or learners plus whole groups, at least one."""
    if world == 1:
        return learners == group == 1
    return world > learners and (world - learners) % group == 0


@given(WORLDS, LEARNERS, GROUP)
def test_a_count_is_accepted_by_the_rule_or_refused_with_counts_that_work(
    world: int, learners: int, group: int
) -> None:
    if accepted(world, learners, group):
        assert plan_layout(world, learners, group) == Layout(world, learners, group)
        return
    with pytest.raises(ConfigError) as refusal:
        plan_layout(world, learners, group)
    message = str(refusal.value)
    assert f"learner_procs={learners}" in message
    assert f"process_per_env={group}" in message
    named = [int(word) for word in re.findall(r"\d+", message.split("ranks work:")[1])]
    assert named
    assert all(accepted(count, learners, group) for count in named)
    assert min(abs(count - world) for count in named) <= max(group, learners + group - world)


@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 12))
def test_every_rank_has_exactly_one_role(learners: int, group: int, groups: int) -> None:
    layout = plan_layout(learners + group * groups, learners, group)
    roles = [layout.role(rank) for rank in range(layout.world)]
    assert [role.rank for role in roles] == list(range(layout.world))
    assert [role.learns for role in roles] == [rank < learners for rank in range(layout.world)]
    assert not any(role.learns and (role.acts or role.group is not None) for role in roles)
    assert layout.actors == groups
    assert layout.actor_ranks() == [role.rank for role in roles if role.acts]
    for number in range(groups):
        members = [role for role in roles if role.group == number]
        assert [role.member for role in members] == list(range(group))
        assert [role.acts for role in members] == [True] + [False] * (group - 1)
        assert members[0].rank == layout.actor_rank(number)
        ranks = [role.rank for role in members]
        assert ranks == list(range(ranks[0], ranks[0] + group))
    assert len(roles) == learners + group * groups
    assert {role.name for role in roles} <= {"learner", "actor", "member"}


@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 12), st.integers(1, 5))
def test_environments_are_numbered_once_and_without_gaps(
    learners: int, group: int, groups: int, envs: int
) -> None:
    layout = plan_layout(learners + group * groups, learners, group)
    numbers = [i for g in range(layout.actors) for i in layout.env_ids(g, envs)]
    assert numbers == list(range(groups * envs))


@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 12))
def test_every_actor_belongs_to_one_learner_and_the_load_is_even(
    learners: int, group: int, groups: int
) -> None:
    layout = plan_layout(learners + group * groups, learners, group)
    shares = [layout.actor_ranks_of(learner) for learner in range(learners)]
    assert sorted(rank for share in shares for rank in share) == layout.actor_ranks()
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    for g in range(groups):
        assert layout.actor_rank(g) in shares[layout.learner_of(g)]


def test_one_rank_is_learner_and_actor() -> None:
    layout = plan_layout(1, 1, 1)
    assert layout.alone
    assert layout.actors == 1
    assert layout.role(0) == Role(0, learns=True, acts=True, group=0)
    assert layout.role(0).name == "learner+actor"
    assert layout.actor_ranks() == [0]
