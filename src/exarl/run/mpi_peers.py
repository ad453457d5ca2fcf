"""The other processes of a run as MPI ranks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from exarl.comm import channel as mpi
from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.comm.cores import find_sharing
from exarl.comm.devices import choose_device
from exarl.comm.layout import Layout, Role
from exarl.comm.messages import Tag, decode, encode
from exarl.comm.team import MpiTeam
from exarl.comm.threads import divide_cores
from exarl.run.task import Peers, T
from exarl.training.snapshot import states_of
from exarl.types import Arrays, EnvSpec

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class MpiPeers(Peers):
    """All ranks of ``comm``, and those of them that belong together; every rank makes one at once.

    Several learners average their weights after ``every`` updates.
    """

    def __init__(
        self, comm: Intracomm, layout: Layout, role: Role, envs_per_actor: int, every: int
    ) -> None:
        self._layout, self._role, self._width = layout, role, envs_per_actor
        mpi.unname_shared_memory(comm)
        self.library = mpi.library_version()
        self._channel = self.channel = mpi.Channel(comm)
        self.group = mpi.split(comm, role.group)
        self.players = mpi.split(comm, None if role.member else 0)
        learners = mpi.split(comm, 0 if role.learns else None)
        choose_device(learners if role.learns else None)
        sharing = find_sharing(comm, role.learns)
        divide_cores(os.environ, sharing, role.learns)
        if role.learns and layout.learners > 1:
            self.team = MpiTeam(learners, every, own_cores=sharing.enough)

    def share(self, data: T) -> T:
        shared: T = self._channel.share(data, Tag.START)
        return shared

    def share_spec(self, own: EnvSpec | None) -> EnvSpec:
        """The spec of the first actor's environments, which it sends to the learners."""
        if own is None:
            first = self._layout.actor_rank(0)
            return decode(self._channel.receive(first, Tag.SPEC)[1], EnvSpec)[0]
        if self._role.group == 0:
            learners = range(self._layout.learners)
            self._channel.send(encode(own), learners, Tag.SPEC)
        return own

    def hand_out(self, states: Arrays) -> Arrays:
        layout = self._layout
        if self._role.acts:
            return decode_arrays(self._channel.receive(0, Tag.STATES)[1])
        if self._role.rank == 0:
            for actor in range(layout.actors):
                own = states_of(states, layout.env_ids(actor, self._width))
                # Posted: an actor may still be busy with its environments.
                self._channel.post(encode_arrays(own), layout.actor_rank(actor), Tag.STATES)
        return states

    def close(self) -> None:
        """At the end, on every rank: nothing that was sent still waits for a receiver."""
        self._channel.close()
        if self.team is not None:
            self.team.channel.close()
