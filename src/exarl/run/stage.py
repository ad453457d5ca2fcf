"""The environment in which policies are evaluated, alone or on the ranks of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from exarl.acting.evaluation import Choose, Move, OnStep, Played, play
from exarl.comm import channel as mpi
from exarl.comm.messages import Tag, decode, encode
from exarl.config import Configuration
from exarl.envs import group
from exarl.envs.base import Space
from exarl.envs.joint import members_of, policies_in
from exarl.envs.member import make_episode
from exarl.envs.spaces import as_given
from exarl.envs.structured import unflattened
from exarl.errors import ConfigError
from exarl.learning.exploration import EVALUATION
from exarl.run.build import build_env, build_guard, whole_episode

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


def check_groups(members: int, ranks: int) -> None:
    """ConfigError unless ``ranks`` form whole groups of ``members``."""
    if ranks % members:
        raise ConfigError(
            f"process_per_env={members} needs a multiple of {members} ranks, not {ranks}:"
            f" --procs {members}"
        )


class Stage:
    """Plays episodes with policies that act on observations as the environment gives them.

    The ranks form groups of ``process_per_env``, each with an environment, and the groups take turns:
    group g of n plays the episodes g, g + n ... Policies act on the first rank of each group; the
    others take part in its steps (``serve``).
    """

    def __init__(
        self, configuration: Configuration, comm: Intracomm | None, options: Mapping[str, Any]
    ) -> None:
        learner = configuration.learner
        size, rank = (comm.size, comm.rank) if comm is not None else (1, 0)
        self._members = learner.process_per_env
        self._groups, (self._group, self._member) = (
            size // self._members,
            divmod(rank, self._members),
        )
        own = mpi.split(comm, self._group) if comm is not None else None
        self._channel = mpi.Channel(comm) if comm is not None else None
        self._shared = mpi.Channel(own) if own is not None and self._members > 1 else None
        self.env, limit = build_env(configuration, own, **options)
        members = members_of(self.env)
        each = [(m.observation_space, m.action_space) for m in members]
        # An action space that travels has no parts there.
        self.spaces: list[tuple[Space, Space]] = [(seen, unflattened(a)) for seen, a in each]
        """Of each agent in the environment."""
        self.policies = policies_in(self.env)
        raw = [as_given(learner.env, *own) for own in each]
        if self._shared is not None and not self._member:
            self.env = group.join(self.env, self._shared, 0)
        guard = build_guard(configuration, **options) if self._shared is None else None
        make = partial(
            make_episode,
            adapter=replace(raw[0], seats=tuple(raw)),
            limit=learner.n_steps or limit,
            seed=learner.seed,
            env_id=0,
            kind=EVALUATION,
            log_info=learner.log_info,
            guard=guard,
        )
        self._episode = whole_episode(self.env, make)

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the environment; where others take part in that, only if nothing went wrong here."""
        if self._shared is None:
            self._episode.close()
        elif error is None and not self._member:
            self._episode.close()
            group.dismiss(self._shared)

    @property
    def first(self) -> bool:
        """Whether this is the rank that has the results."""
        return self._group == self._member == 0

    @property
    def alone(self) -> bool:
        """Whether this process plays all episodes."""
        return self._groups == self._members == 1

    def serve(self) -> bool:
        """On a rank on which no policy acts: take part in the steps of its group until the end. Return
        whether this is one."""
        if self._member and self._shared is not None:
            group.serve([self.env], self._shared)
        return bool(self._member)

    def play(
        self,
        choose: Choose,
        episodes: int,
        on_episode: Callable[[int, Played], None],
        on_step: OnStep | None = None,
        on_move: Callable[[Move], None] | None = None,
    ) -> tuple[Played, ...]:
        """Play this group's share of the episodes; on the first rank, all of them.

        ``on_episode`` is called there for each; ``on_step`` in episode 0, ``on_move`` with each step
        of this group's.
        """
        mine: dict[int, Played] = {}
        for number in range(self._group, episodes, self._groups):
            self._episode.number = number - 1
            mine[number] = play(choose, self._episode, None if number else on_step, on_move)
            if self._groups == 1:
                on_episode(number, mine[number])
        if self._groups > 1:
            mine |= self._others(list(mine.values()), episodes)
            if self.first:
                for number in range(episodes):
                    on_episode(number, mine[number])
        return tuple(mine[number] for number in sorted(mine))

    def _others(self, mine: list[Played], episodes: int) -> dict[int, Played]:
        """On the first rank the episodes of the other groups; these send theirs."""
        assert self._channel is not None
        if self._group:
            self._channel.send(encode(mine), 0, Tag.EVALUATED)
            return {}
        played: dict[int, Played] = {}
        for other in range(1, self._groups):
            _, payload = self._channel.receive(other * self._members, Tag.EVALUATED)
            numbers = range(other, episodes, self._groups)
            played |= zip(numbers, decode(payload, list[Played])[0], strict=True)
        return played
