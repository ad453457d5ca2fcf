"""Ranks and roles: learners first, then groups of ranks that share an environment.

A single rank is learner and actor at once. Otherwise the world is ``learners`` ranks followed by
groups of ``process_per_env`` ranks; the first of a group is its actor, the others are its members,
which only take part in the environment's steps.
"""

from __future__ import annotations

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
