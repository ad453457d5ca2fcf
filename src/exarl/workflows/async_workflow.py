"""The asynchronous workflow: non-blocking messages between each actor and its learner."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.comm.messages import (
    LAST,
    ActorState,
    Grant,
    Order,
    SendState,
    Tag,
    decode,
    encode,
)
from exarl.comm.pacer import Pacer
from exarl.comm.transport import ANY
from exarl.config import param
from exarl.errors import ConfigError
from exarl.training.actors import Tally
from exarl.training.process import Actor, Learner, RunOutcome, RunProcess
from exarl.types import Arrays, Block, timed
from exarl.workflows import sync
from exarl.workflows.base import ExaWorkflow
from exarl.workflows.block_source import PacedSource
from exarl.workflows.lagging_loops import LaggingConfig, act, learn, tracker_of

_CHECK_EVERY_S = 0.05


@dataclass(frozen=True)
class AsyncConfig(LaggingConfig):
    """Parameters of the asynchronous workflow."""

    blocks_ahead: int = param(
        1, "blocks that an actor may begin before its last one has been trained", ge=0
    )
    order: Literal["first_come", "round_robin"] = param(
        "first_come",
        "which block is trained next: the first that has come, or each actor's in turn",
    )


class Async(ExaWorkflow):
    """Actors act, learners learn, and none waits for the slowest."""

    Config = AsyncConfig
    many_learners = True
    lags = True

    def ready(self, process: RunProcess) -> None:
        check_actors(process)

    def learn(self, learner: Learner) -> RunOutcome:
        if learner.actor is not None:
            return sync.learn(learner, sync.actors_of(learner))  # one process takes turns: lag 0
        source, together = TwoSidedSource(learner, self.config), self.config.blocks_together
        return learn(learner, source, self.config.bounded, together)

    def act(self, actor: Actor) -> RunOutcome:
        return act(actor, TwoSidedSink(actor), self.config)


def check_actors(process: RunProcess) -> None:
    """ConfigError if a learner would never receive a block: it trains those of its own actors only."""
    layout = process.layout
    if process.role.rank == 0 and layout.learners > layout.actors:  # one line is enough
        raise ConfigError(
            f"learner_procs={layout.learners} needs at least as many actors, not {layout.actors}:"
            " messages bring a learner the blocks of its own actors only"
        )


class TwoSidedSink:
    """An actor's end of the messages. Orders that come while it acts wait until the block ends."""

    def __init__(self, actor: Actor) -> None:
        assert actor.channel is not None and actor.role.group is not None
        self._channel = actor.channel
        self._agent = actor.agent
        self._rollout = actor.rollout
        self._codec = actor.codec
        self._clock = actor.clock
        self._learner = actor.layout.learner_of(actor.role.group)
        self._newest: tuple[int, np.ndarray] | None = None  # version and weights of the last grant
        self._grants = 0
        self._version = 0
        self._sent = 0
        self._asked: int | None = None  # the newest snapshot that wants a state
        self._stop = False
        self._checked = 0.0

    def wait_for_grant(self, holding: bool = False) -> int | None:
        self._read_orders()
        with self._clock.phase("wait"):
            while not self._grants and not self._stop:
                if not holding:
                    self._answer()
                self._obey(self._channel.receive(self._learner, Tag.ORDER)[1])
        if not holding:
            self._answer()
        if self._stop:
            return None
        self._grants -= 1
        if self._newest is not None:
            self._version, weights = self._newest
            self._agent.set_weights(weights.view(np.float32))
            self._newest = None
        return self._version

    def stopped(self) -> bool:
        now = time.perf_counter()
        if now - self._checked > _CHECK_EVERY_S:
            self._checked = now
            self._read_orders()
        return self._stop

    def put(self, block: Block) -> None:
        spent = self._clock.take()
        block = timed(block, {phase: spent.get(phase, 0.0) for phase in ("wait", "send")})
        self._sent += 1
        with self._clock.phase("send"):
            message = self._codec.encode(block, self._channel.rank, self._sent)
            self._channel.post(message, self._learner, Tag.BLOCK)

    def close(self, state: Arrays, tally: Tally) -> None:
        self._send_state(LAST, state, tally.dropped)

    def _read_orders(self) -> None:
        while (found := self._channel.poll(self._learner, Tag.ORDER)) is not None:
            self._obey(found[1])

    def _obey(self, message: np.ndarray) -> None:
        order, weights = decode(message, Order)
        if isinstance(order, Grant):
            self._grants += 1
            self._newest = order.version, weights
        elif isinstance(order, SendState):
            self._asked = order.snapshot
        else:
            self._stop = True

    def _answer(self) -> None:
        if self._asked is not None:
            self._send_state(self._asked, self._rollout.state(), 0)
            self._asked = None

    def _send_state(self, snapshot: int, state: Arrays, dropped: int) -> None:
        # One tag for all answers: the last one comes after all others, so none is left behind.
        answer = encode(ActorState(snapshot, self._sent, dropped), encode_arrays(state))
        self._channel.post(answer, self._learner, Tag.STATE)


class TwoSidedSource(PacedSource):
    """A learner's end of the messages with the actors assigned to it."""

    def __init__(self, learner: Learner, config: AsyncConfig) -> None:
        assert learner.channel is not None
        self._channel = learner.channel
        self._codec = learner.codec
        ranks = learner.layout.actor_ranks_of(learner.role.rank)
        lag, ahead = config.max_policy_lag, config.blocks_ahead
        pacer = Pacer(ranks, max_lag=lag, ahead=ahead, order=config.order)
        super().__init__(ranks, pacer, tracker_of(learner, config.state_timeout))

    def publish(self, weights: Callable[[], np.ndarray], version: int, trained: int) -> None:
        ranks = self._pacer.grants(version)
        if ranks:
            message = encode(Grant(version), weights())
            for rank in ranks:
                self._channel.post(message, rank, Tag.ORDER)

    def _receive_blocks(self) -> None:
        while (found := self._channel.poll(ANY, Tag.BLOCK)) is not None:
            self._arrived(found[0], self._codec.decode(found[1]))

    def _receive_answers(self) -> None:
        while (found := self._channel.poll(ANY, Tag.STATE)) is not None:
            answer, states = decode(found[1], ActorState)
            self._answered(found[0], answer, decode_arrays(states))

    def _order_all(self, order: Order) -> None:
        for rank in self._ranks:
            self._channel.post(encode(order), rank, Tag.ORDER)
