"""The synchronous workflow: all actors roll, the learner gathers, trains and broadcasts.

Every iteration uses one version of the weights, so for a seed the result depends on nothing but the
number of environments: the reference that every other workflow is compared with. A stop signal, or
``wall_time``, is obeyed between two steps; the block that was begun then belongs to the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Protocol

import numpy as np

from exarl.acting.block_builder import BEGUN
from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.comm.mpi import Channel
from exarl.comm.wait import wait_for
from exarl.types import ACTOR_PHASES, Arrays, Block, concatenate
from exarl.workflows.base import ExaWorkflow, Experiment

ORDER_TAG, BLOCK_TAG, STATE_TAG = 1, 2, 3
ROLL, SEND_STATE, STOP, HALT = range(4)
_LOOK_EVERY_S = 0.01
"""How often an actor looks for an order while it acts, if its steps are shorter."""


class Team(Protocol):
    """The actors as the learner sees them."""

    def roll(self, weights: np.ndarray, version: int) -> Block | None:
        """One block of all environments, acted with these weights; None if the run must stop first."""

    def state(self) -> Arrays:
        """The state of all environments, and what they have of a block that was not finished."""

    def pending(self) -> Arrays:
        """Blocks of actors that had finished theirs when the others were stopped."""

    def stop(self) -> None:
        """Nothing more will be asked."""


class Sync(ExaWorkflow):
    """Gather, train, broadcast."""

    def run(self, learner: Experiment) -> None:
        if learner.role.learns:
            lead(learner, Alone(learner) if learner.role.acts else Remote(learner))
        else:
            follow(learner)


def lead(learner: Experiment, team: Team) -> None:
    """The learner's side."""
    loop = learner.loop
    while not loop.finished:
        weights, version = loop.weights()
        if loop.finished:  # they are not finite
            break
        loop.absorb(team.roll(weights, version))
        if loop.checkpoint_due():
            loop.checkpoint(team.state(), team.pending())
    team.stop()


def must_stop(learner: Experiment) -> Callable[[], bool]:
    """Whether the run must stop in the middle of a block: cheap enough to ask at every step."""
    signals, loop, limit = learner.signals, learner.loop, learner.config.wall_time

    def asked() -> bool:
        over = limit is not None and loop.seconds >= limit
        return (over or signals.received is not None) and loop.should_stop()

    return asked


def follow(learner: Experiment) -> None:
    """An actor's side: do what the learner orders."""
    channel, clock = learner.channel, learner.clock
    assert channel is not None
    if learner.fresh:
        roll(learner, 0)  # the first weights follow from the seed: no need to wait for the learner
    while True:
        with clock.phase("wait"):
            _, message = channel.receive(0, ORDER_TAG)
        order, version = message[:16].view(np.int64).tolist()
        if order == ROLL:
            learner.agent.set_weights(message[16:].view(np.float32))
            roll(learner, version)
        elif order == SEND_STATE:
            channel.send(encode_arrays(learner.rollout.state(unfinished=True)), 0, STATE_TAG)
        elif order == STOP:
            return
        # HALT: the block was on its way already


def roll(learner: Experiment, version: int) -> None:
    """Collect a block and send it; an empty message if the learner says HALT before it is whole."""
    channel, clock = learner.channel, learner.clock
    assert channel is not None
    with clock.phase("rollout"):
        block = learner.rollout.collect(version, halted(channel))
    if block is None:
        channel.send(b"", 0, BLOCK_TAG)
        return
    spent = clock.take()
    block.seconds[ACTOR_PHASES.index("wait")] = spent.get("wait", 0.0)
    block.seconds[ACTOR_PHASES.index("send")] = spent.get("send", 0.0)
    with clock.phase("send"):
        channel.send(learner.codec.encode(block), 0, BLOCK_TAG)


def halted(channel: Channel) -> Callable[[], bool]:
    """Whether the learner has sent an order while its actor acts: that can only be HALT."""
    looked = 0.0

    def asked() -> bool:
        nonlocal looked
        now = perf_counter()
        if now - looked < _LOOK_EVERY_S:
            return False
        looked = now
        # What arrived during a long step is taken in by one poll and found by the next.
        return any(channel.poll(0, ORDER_TAG) is not None for _ in range(3))

    return asked


class Alone:
    """Learner and actor in one process."""

    def __init__(self, learner: Experiment) -> None:
        self._agent = learner.agent
        self._rollout = learner.rollout
        self._clock = learner.clock
        self._must_stop = must_stop(learner)

    def roll(self, weights: np.ndarray, version: int) -> Block | None:
        self._agent.set_weights(weights)
        block = self._rollout.collect(version, self._must_stop)
        if block is None:
            return None
        for phase, seconds in zip(ACTOR_PHASES, block.seconds.tolist(), strict=True):
            if seconds:
                self._clock.add(phase, seconds)
        return block

    def state(self) -> Arrays:
        return self._rollout.state(unfinished=True)

    def pending(self) -> Arrays:
        return {}

    def stop(self) -> None:
        pass


class Remote:
    """Actors on other ranks."""

    def __init__(self, learner: Experiment) -> None:
        assert learner.channel is not None
        self._channel = learner.channel
        self._ranks = learner.layout.actor_ranks()
        self._codec = learner.codec
        self._clock = learner.clock
        self._must_stop = must_stop(learner)
        self._ahead = learner.fresh  # the first block comes without an order
        self._halted = False
        self._arrived: dict[int, np.ndarray] = {}  # by rank, of the round under way
        finished = finished_groups(learner.states, learner.config.envs_per_actor)
        for group, block in zip(finished, learner.backlog, strict=False):
            if group < learner.layout.actors:
                self._arrived[learner.layout.actor_rank(group)] = self._codec.encode(block)

    def roll(self, weights: np.ndarray, version: int) -> Block | None:
        missing = [rank for rank in self._ranks if rank not in self._arrived]
        if not self._ahead:
            with self._clock.phase("send"):
                self._order(missing, ROLL, version, weights.tobytes())
        self._ahead = False
        with self._clock.phase("wait"):
            for rank in missing:
                self._arrived[rank] = self._receive(rank)
        if not all(map(len, self._arrived.values())):
            self._arrived = {rank: found for rank, found in self._arrived.items() if len(found)}
            return None
        with self._clock.phase("unpack"):
            payloads = [self._arrived[rank] for rank in self._ranks]
            self._arrived = {}
            return concatenate([self._codec.decode(payload) for payload in payloads])

    def _receive(self, rank: int) -> np.ndarray:
        """The block of an actor, or nothing where it was stopped before its end."""

        def poll() -> np.ndarray | None:
            found = self._channel.poll(rank, BLOCK_TAG)
            if found is None and not self._halted and self._must_stop():
                self._halt([rank for rank in self._ranks if rank not in self._arrived])
            return None if found is None else found[1]

        return wait_for(poll)

    def _halt(self, ranks: Sequence[int]) -> None:
        self._halted = True
        self._order(ranks, HALT)

    def pending(self) -> Arrays:
        return {f"{rank:06d}": payload for rank, payload in self._arrived.items()}

    def state(self) -> Arrays:
        self._order(self._ranks, SEND_STATE)
        arrays: Arrays = {}
        for rank in self._ranks:
            arrays |= decode_arrays(self._channel.receive(rank, STATE_TAG)[1])
        return arrays

    def stop(self) -> None:
        if self._ahead:  # stopped before the first block: each actor still sends one, or nothing
            self._halt(self._ranks)
            for rank in self._ranks:
                self._channel.receive(rank, BLOCK_TAG)
        self._order(self._ranks, STOP)

    def _order(
        self, ranks: Sequence[int], order: int, version: int = 0, payload: bytes = b""
    ) -> None:
        header = np.array([order, version], np.int64).tobytes()
        self._channel.send(header + payload, ranks, ORDER_TAG)


def finished_groups(states: Arrays, width: int) -> list[int]:
    """The actors, by group, whose ``width`` environments had made a whole block each.

    Their blocks are pending where other actors were stopped in theirs, in this order.
    """
    parts = [name.split("/", 2) for name in states]
    stored = {int(part[0]) // width for part in parts}
    begun = {int(part[0]) // width for part in parts if part[1] == BEGUN}
    return sorted(stored - begun)
