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
from exarl.comm.channel import Channel
from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.comm.messages import (
    ActorState,
    Grant,
    Halt,
    Order,
    Payload,
    SendState,
    StopActing,
    Tag,
    decode,
    encode,
)
from exarl.comm.waiting import wait_for
from exarl.training.process import Actor, Learner, RunOutcome
from exarl.types import ACTOR_PHASES, Arrays, Block, acting_seconds, concatenate, timed
from exarl.workflows.base import ExaWorkflow

_LOOK_EVERY_S = 0.01
"""How often an actor looks for an order while it acts, if its steps are shorter."""


class Actors(Protocol):
    """The actors as the learner sees them."""

    def roll(self, weights: np.ndarray, version: int) -> Block | None:
        """One block of all environments, acted with these weights; None if the run stops first."""

    def state(self) -> Arrays:
        """The state of all environments, with the beginning of a block that was not finished."""

    def pending(self) -> Arrays:
        """Blocks of actors that had finished theirs when the others were stopped."""

    def stop(self) -> None:
        """Let the actors end; nothing more is asked of them."""


class Sync(ExaWorkflow):
    """Gather, train, broadcast."""

    def learn(self, learner: Learner) -> RunOutcome:
        return learn(learner, actors_of(learner))

    def act(self, actor: Actor) -> RunOutcome:
        return act(actor)


def actors_of(learner: Learner) -> Actors:
    """All actors of a run with one learner: this process itself, or those on other ranks."""
    return RemoteActors(learner) if learner.actor is None else LocalActors(learner, learner.actor)


def learn(learner: Learner, actors: Actors) -> RunOutcome:
    """The learner's side."""
    loop = learner.loop
    while not loop.finished:
        weights, version = loop.weights()
        if loop.finished:  # they are not finite
            break
        loop.train(actors.roll(weights, version))
        if loop.checkpoint_due():
            loop.checkpoint(actors.state(), actors.pending())
    actors.stop()
    return RunOutcome()


def must_stop(learner: Learner) -> Callable[[], bool]:
    """A function that says whether to stop in the middle of a block; cheap enough for every step."""
    signals, loop, limit = learner.signals, learner.loop, learner.config.wall_time

    def asked() -> bool:
        over = limit is not None and loop.seconds >= limit
        return (over or signals.received is not None) and loop.should_stop()

    return asked


def act(actor: Actor) -> RunOutcome:
    """An actor's side: do what the learner orders."""
    channel, clock = actor.channel, actor.clock
    assert channel is not None
    if actor.fresh:
        roll(actor, channel, 0)  # the first weights follow from the seed: no need to wait for them
    while True:
        with clock.phase("wait"):
            _, message = channel.receive(0, Tag.ORDER)
        order, weights = decode(message, Order)
        if isinstance(order, Grant):
            actor.agent.set_weights(weights.view(np.float32))
            roll(actor, channel, order.version)
        elif isinstance(order, SendState):
            states = encode_arrays(actor.rollout.state(unfinished=True))
            channel.send(encode(ActorState(order.snapshot), states), 0, Tag.STATE)
        elif isinstance(order, StopActing):
            return RunOutcome()
        # Halt: the block was on its way already


def roll(actor: Actor, channel: Channel, version: int) -> None:
    """Collect a block and send it; an empty message if a ``Halt`` comes before it is complete."""
    clock = actor.clock
    with clock.phase("rollout"):
        block = actor.rollout.collect(version, halted(channel))
    if block is None:
        channel.send(b"", 0, Tag.BLOCK)
        return
    clock.acted(acting_seconds(block))
    spent = clock.take()
    block = timed(block, {phase: spent.get(phase, 0.0) for phase in ("wait", "send")})
    with clock.phase("send"):
        channel.send(actor.codec.encode(block), 0, Tag.BLOCK)


def halted(channel: Channel) -> Callable[[], bool]:
    """Whether the learner has sent an order while its actor acts: that can only be ``Halt``."""
    looked = 0.0

    def asked() -> bool:
        nonlocal looked
        now = perf_counter()
        if now - looked < _LOOK_EVERY_S:
            return False
        looked = now
        # A message that arrived during a long step is received by one poll and returned by the next.
        return any(channel.poll(0, Tag.ORDER) is not None for _ in range(3))

    return asked


class LocalActors:
    """Learner and actor in one process."""

    def __init__(self, learner: Learner, actor: Actor) -> None:
        self._agent, self._rollout = actor.agent, actor.rollout
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


class RemoteActors:
    """Actors on other ranks."""

    def __init__(self, learner: Learner) -> None:
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
                self._order(missing, Grant(version), weights)
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
        """The block of an actor as bytes; none if it was stopped before the block's end."""

        def poll() -> np.ndarray | None:
            found = self._channel.poll(rank, Tag.BLOCK)
            if found is None and not self._halted and self._must_stop():
                self._halt([rank for rank in self._ranks if rank not in self._arrived])
            return None if found is None else found[1]

        return wait_for(poll)

    def _halt(self, ranks: Sequence[int]) -> None:
        self._halted = True
        self._order(ranks, Halt())

    def pending(self) -> Arrays:
        ranks = sorted(self._arrived)
        return self._codec.pack([self._codec.decode(self._arrived[rank]) for rank in ranks], ranks)

    def state(self) -> Arrays:
        self._order(self._ranks, SendState(1))
        arrays: Arrays = {}
        for rank in self._ranks:
            _, states = decode(self._channel.receive(rank, Tag.STATE)[1], ActorState)
            arrays |= decode_arrays(states)
        return arrays

    def stop(self) -> None:
        if self._ahead:  # stopped before the first block: each actor still sends one, or nothing
            self._halt(self._ranks)
            for rank in self._ranks:
                self._channel.receive(rank, Tag.BLOCK)
        self._order(self._ranks, StopActing())

    def _order(self, ranks: Sequence[int], order: Order, weights: Payload = b"") -> None:
        self._channel.send(encode(order, weights), ranks, Tag.ORDER)


def finished_groups(states: Arrays, width: int) -> list[int]:
    """The actors, by group, that had finished their block when others were stopped in theirs.

    Each has ``width`` environments. Their blocks are pending, in this order.
    """
    parts = [name.split("/", 2) for name in states]
    stored = {int(part[0]) // width for part in parts}
    begun = {int(part[0]) // width for part in parts if part[1] == BEGUN}
    return sorted(stored - begun)
