"""The synchronous workflow: all actors roll, the learner gathers, trains and broadcasts.

Every iteration uses one version of the weights, so for a seed the result depends on nothing but the
number of environments: the reference that every other workflow is compared with.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.types import ACTOR_PHASES, Arrays, Block, concatenate
from exarl.workflows.base import ExaWorkflow, Experiment

ORDER_TAG, BLOCK_TAG, STATE_TAG = 1, 2, 3
ROLL, SEND_STATE, STOP = range(3)


class Team(Protocol):
    """The actors as the learner sees them."""

    def roll(self, weights: np.ndarray, version: int) -> Block:
        """One block of all environments, acted with these weights."""

    def state(self) -> Arrays:
        """The state of all environments after the last block."""

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
        loop.absorb(team.roll(*loop.weights()))
        if loop.checkpoint_due():
            loop.checkpoint(team.state())
    team.stop()


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
            channel.send(encode_arrays(learner.rollout.state()), 0, STATE_TAG)
        else:
            return


def roll(learner: Experiment, version: int) -> None:
    """Collect a block and send it."""
    channel, clock = learner.channel, learner.clock
    assert channel is not None
    with clock.phase("rollout"):
        block = learner.rollout.collect(version)
    assert block is not None
    spent = clock.take()
    block.seconds[ACTOR_PHASES.index("wait")] = spent.get("wait", 0.0)
    block.seconds[ACTOR_PHASES.index("send")] = spent.get("send", 0.0)
    with clock.phase("send"):
        channel.send(learner.codec.encode(block), 0, BLOCK_TAG)


class Alone:
    """Learner and actor in one process."""

    def __init__(self, learner: Experiment) -> None:
        self._agent = learner.agent
        self._rollout = learner.rollout
        self._clock = learner.clock

    def roll(self, weights: np.ndarray, version: int) -> Block:
        self._agent.set_weights(weights)
        block = self._rollout.collect(version)
        assert block is not None
        for phase, seconds in zip(ACTOR_PHASES, block.seconds.tolist(), strict=True):
            if seconds:
                self._clock.add(phase, seconds)
        return block

    def state(self) -> Arrays:
        return self._rollout.state()

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
        self._ahead = learner.fresh  # the first block comes without an order

    def roll(self, weights: np.ndarray, version: int) -> Block:
        if not self._ahead:
            with self._clock.phase("send"):
                self._order(ROLL, version, weights.tobytes())
        self._ahead = False
        with self._clock.phase("wait"):
            payloads = [self._channel.receive(rank, BLOCK_TAG)[1] for rank in self._ranks]
        with self._clock.phase("unpack"):
            return concatenate([self._codec.decode(payload) for payload in payloads])

    def state(self) -> Arrays:
        self._order(SEND_STATE)
        arrays: Arrays = {}
        for rank in self._ranks:
            arrays |= decode_arrays(self._channel.receive(rank, STATE_TAG)[1])
        return arrays

    def stop(self) -> None:
        if self._ahead:  # stopped before the first block; whoever sends it must not wait for ever
            for rank in self._ranks:
                self._channel.receive(rank, BLOCK_TAG)
        self._order(STOP)

    def _order(self, order: int, version: int = 0, payload: bytes = b"") -> None:
        header = np.array([order, version], np.int64).tobytes()
        self._channel.send(header + payload, self._ranks, ORDER_TAG)
