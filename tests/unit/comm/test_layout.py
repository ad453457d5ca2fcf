"""Ranks and roles: every rank has exactly one, and a refusal names counts that work."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exarl.comm.layout import Layout, Role, plan_layout, spread_ranks
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


# -- learners over nodes ---------------------------------------------------------------------------


def spread(sizes: dict[str, int], learners: int, group: int, suited: str = "") -> list[str]:
    """The hosts of the ranks in the new order, which is checked to have each rank once."""
    hosts = [host for host, size in sizes.items() for _ in range(size)]
    fit = [not suited or host in suited for host in hosts]
    order = spread_ranks(hosts, fit, learners, group)
    assert sorted(order) == list(range(len(hosts)))
    assert order[0] == 0, "the first rank writes the run and its messages"
    return [hosts[rank] for rank in order]


@pytest.mark.parametrize(
    ("sizes", "learners", "group", "suited", "where"),
    [
        ({"a": 4}, 2, 1, "", "aa aa"),
        ({"a": 4, "b": 4}, 2, 1, "", "ab ababab"),  # actor g belongs to learner g % 2
        ({"a": 5, "b": 5}, 2, 4, "", "ab aaaabbbb"),
        ({"a": 2, "b": 2, "c": 2, "d": 2}, 2, 1, "", "ac acbbdd"),
        ({"a": 2, "b": 2}, 3, 1, "", "aba b"),
        ({"a": 1, "b": 4}, 3, 1, "", "abb bb"),
        ({"g": 2, "a": 3, "h": 2}, 2, 1, "gh", "gh ghaaa"),  # nodes with a GPU
        ({"g": 4, "a": 4}, 2, 1, "g", "gg ggaaaa"),
        ({"g": 1, "a": 4}, 2, 1, "g", "ga aaa"),
        ({"a": 6, "b": 4}, 2, 4, "", "aa aaaabbbb"),  # spread, a group would span both nodes
        ({"a": 4, "b": 4}, 1, 1, "", "a aaabbbb"),
    ],
)
def test_learners_are_spread_over_nodes(
    sizes: dict[str, int], learners: int, group: int, suited: str, where: str
) -> None:
    assert "".join(spread(sizes, learners, group, suited)) == where.replace(" ", "")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 6), st.integers(1, 4))
def test_spreading_breaks_up_no_group(sizes: list[int], learners: int, group: int) -> None:
    hosts = {str(number): size for number, size in enumerate(sizes)}
    spare = (sum(sizes) - learners) % group
    hosts["last"] = (group - spare) % group + group * max(0, learners + 1 - sum(sizes)) or group
    ranks = [host for host, size in hosts.items() for _ in range(size)]
    found = spread(hosts, learners, group)

    def whole(order: list[str]) -> int:
        groups = [order[i : i + group] for i in range(learners, len(order), group)]
        return sum(len(set(each)) == 1 for each in groups)

    assert whole(found) >= whole(ranks)
    if group == 1:
        assert len(set(found[:learners])) == min(learners, len(hosts))
