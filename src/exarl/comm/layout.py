"""Ranks and roles: learners first, then groups of ranks that share an environment.

A single rank is learner and actor at once. Otherwise the world is ``learners`` ranks followed by
groups of ``process_per_env`` ranks; the first of a group is its actor, the others are its members,
which only take part in the environment's steps.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from exarl.errors import ConfigError


@dataclass(frozen=True)
class Role:
    """What one rank does. ``group`` numbers environment groups; None on a rank that only learns."""

    rank: int
    learns: bool
    acts: bool
    group: int | None
    member: int = 0  # place within the group; 0 is the actor

    @property
    def name(self) -> str:
        if self.learns and self.acts:
            return "learner+actor"
        return "learner" if self.learns else "actor" if self.acts else "member"


@dataclass(frozen=True)
class Layout:
    """How the ranks of a run are used."""

    world: int
    learners: int
    process_per_env: int

    @property
    def alone(self) -> bool:
        return self.world == 1

    @property
    def actors(self) -> int:
        """How many environment groups there are."""
        return 1 if self.alone else (self.world - self.learners) // self.process_per_env

    def actor_rank(self, group: int) -> int:
        return 0 if self.alone else self.learners + group * self.process_per_env

    def actor_ranks(self) -> list[int]:
        return [self.actor_rank(group) for group in range(self.actors)]

    def learner_of(self, group: int) -> int:
        """The rank of the learner that a group's blocks go to."""
        return group % self.learners

    def actor_ranks_of(self, learner: int) -> list[int]:
        """The ranks of the actors assigned to a learner."""
        return [self.actor_rank(g) for g in range(self.actors) if self.learner_of(g) == learner]

    def role(self, rank: int) -> Role:
        if self.alone:
            return Role(0, learns=True, acts=True, group=0)
        if rank < self.learners:
            return Role(rank, learns=True, acts=False, group=None)
        group, member = divmod(rank - self.learners, self.process_per_env)
        return Role(rank, learns=False, acts=member == 0, group=group, member=member)

    def env_ids(self, group: int, envs_per_actor: int) -> range:
        """The run-wide numbers of a group's environments, which also select its random streams."""
        return range(group * envs_per_actor, (group + 1) * envs_per_actor)


def plan_layout(world: int, learners: int, process_per_env: int) -> Layout:
    """The layout of ``world`` ranks; ConfigError with counts that work if this one does not."""
    actors, left_over = divmod(world - learners, process_per_env)
    if (world == 1 and learners == process_per_env == 1) or (actors >= 1 and not left_over):
        return Layout(world, learners, process_per_env)
    groups = max(actors, 1)
    counts = [learners + k * process_per_env for k in range(max(groups - 2, 1), groups + 4)]
    near = sorted(sorted(counts, key=lambda count: abs(count - world))[:3])
    raise ConfigError(
        f"{world} rank{'s' * (world != 1)} cannot hold learner_procs={learners} and environment"
        f" groups of process_per_env={process_per_env};"
        f" {learners} + k x {process_per_env} ranks work: {', '.join(map(str, near))}"
    )


def spread_ranks(
    nodes: Sequence[Hashable], suited: Sequence[bool], learners: int, process_per_env: int
) -> list[int]:
    """The ranks in a new order, whose first ``learners`` are on as many nodes as possible.

    ``nodes`` says where each rank runs, ``suited`` whether learners may be there. Rank 0 stays the
    first. Environment groups remain within a node where they can, with the learner that they belong
    to if possible. The old order is kept if fewer groups would remain within a node otherwise.
    """
    free = {
        node: [r for r, own in enumerate(nodes) if own == node] for node in dict.fromkeys(nodes)
    }
    homes = list(dict.fromkeys(node for node, fit in zip(nodes, suited, strict=True) if fit))
    first: list[int] = []
    for k in range(learners):
        distance = max(1, len(homes) // learners)
        turn = [homes[(k * distance + i) % len(homes)] for i in range(len(homes))]
        first.append(next(free[node] for node in [*turn, *free] if free[node]).pop(0))
    whole = {
        node: [ranks[i : i + process_per_env] for i in range(0, len(ranks), process_per_env)]
        for node, ranks in free.items()
    }
    parts = [
        groups.pop() for groups in whole.values() if groups and len(groups[-1]) < process_per_env
    ]
    order, taken = list(first), {nodes[rank] for rank in first}
    elsewhere = sorted(whole, key=lambda node: node in taken)
    for group in range(sum(map(len, whole.values()))):
        wanted = nodes[first[group % learners]]
        while not whole[elsewhere[0]]:
            elsewhere.pop(0)
        order += whole[wanted if whole[wanted] else elsewhere[0]].pop(0)
    order += [rank for part in parts for rank in part]
    old = list(range(len(nodes)))
    within = [_within(nodes, ranks[learners:], process_per_env) for ranks in (order, old)]
    return order if within[0] >= within[1] else old


def _within(nodes: Sequence[Hashable], ranks: Sequence[int], width: int) -> int:
    """How many groups of ``width`` ranks lie within a node."""
    groups = [ranks[i : i + width] for i in range(0, len(ranks), width)]
    return sum(len({nodes[rank] for rank in group}) == 1 for group in groups)
