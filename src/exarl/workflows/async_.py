"""The asynchronous workflow: non-blocking messages between each actor and its learner."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.comm.messages import ANY
from exarl.config import param
from exarl.types import ACTOR_PHASES, Arrays, Block
from exarl.workflows import sync
from exarl.workflows.asynchronous import LaggingConfig, act, begin, lead
from exarl.workflows.base import ExaWorkflow, Experiment, Tally
from exarl.workflows.paced import GRANT, SEND_STATE, STOP, PacedSource
from exarl.workflows.pacing import Pacer

ORDER_TAG, BLOCK_TAG, STATE_TAG, GOODBYE_TAG = 1, 2, 3, 4
_CHECK_EVERY_S = 0.05


@dataclass(frozen=True)
class AsyncConfig(LaggingConfig):
    """Parameters of the asynchronous workflow."""

    blocks_ahead: int = param(
        1, "blocks an actor may begin before its last one has been trained", ge=0
    )
    order: Literal["first_come", "round_robin"] = param(
        "first_come", "which block is trained next: who came first, or each actor in turn"
    )


class Async(ExaWorkflow):
    """Actors act, learners learn, nobody waits for the slowest."""

    Config = AsyncConfig
    many_learners = True
    lags = True

    def run(self, learner: Experiment) -> None:
        if learner.layout.alone:
            sync.lead(learner, sync.Alone(learner))  # one process takes turns: lag 0
        elif learner.role.learns:
            lead(learner, TwoSidedSource(learner, self.config), self.config.bounded)
        else:
            act(learner, TwoSidedSink(learner), begin(learner, self.config))


class TwoSidedSink:
    """An actor's end of the messages. Orders that come while it acts wait for the block's end."""

    def __init__(self, learner: Experiment) -> None:
        assert learner.channel is not None and learner.role.group is not None
        self._channel = learner.channel
        self._agent = learner.agent
        self._rollout = learner.rollout
        self._codec = learner.codec
        self._clock = learner.clock
        self._learner = learner.layout.learner_of(learner.role.group)
        self._newest: np.ndarray | None = None  # the last grant's message
        self._grants = 0
        self._version = 0
        self._sent = 0
        self._state_wanted = False
        self._stop = False
        self._checked = 0.0

    def leave(self) -> int | None:
        self._read_orders()
        with self._clock.phase("wait"):
            while not self._grants and not self._stop:
                self._answer()
                self._obey(self._channel.receive(self._learner, ORDER_TAG)[1])
        self._answer()
        if self._stop:
            return None
        self._grants -= 1
        if self._newest is not None:
            self._version = int(self._newest[8:16].view(np.int64)[0])
            self._agent.set_weights(self._newest[16:].view(np.float32))
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
        for phase in ("wait", "send"):
            block.seconds[ACTOR_PHASES.index(phase)] = spent.get(phase, 0.0)
        with self._clock.phase("send"):
            self._channel.post(self._codec.encode(block), self._learner, BLOCK_TAG)
        self._sent += 1

    def close(self, state: Arrays, tally: Tally) -> None:
        self._send_state(GOODBYE_TAG, state, tally.dropped)
        self._channel.flush()

    def _read_orders(self) -> None:
        while (found := self._channel.poll(self._learner, ORDER_TAG)) is not None:
            self._obey(found[1])

    def _obey(self, message: np.ndarray) -> None:
        order = int(message[:8].view(np.int64)[0])
        if order == GRANT:
            self._grants += 1
            self._newest = message
        elif order == SEND_STATE:
            self._state_wanted = True
        else:
            self._stop = True

    def _answer(self) -> None:
        if self._state_wanted:
            self._state_wanted = False
            self._send_state(STATE_TAG, self._rollout.state(), 0)

    def _send_state(self, tag: int, state: Arrays, dropped: int) -> None:
        header = np.array([self._sent, dropped], np.int64).tobytes()
        self._channel.post(header + encode_arrays(state), self._learner, tag)


class TwoSidedSource(PacedSource):
    """A learner's end of the messages with the actors assigned to it."""

    def __init__(self, learner: Experiment, config: AsyncConfig) -> None:
        assert learner.channel is not None
        self._channel = learner.channel
        self._codec = learner.codec
        ranks = learner.layout.actor_ranks_of(learner.role.rank)
        lag, ahead = config.max_policy_lag, config.blocks_ahead
        super().__init__(ranks, Pacer(ranks, max_lag=lag, ahead=ahead, order=config.order))

    def publish(self, weights: Callable[[], np.ndarray], version: int, trained: int) -> None:
        ranks = self._pacer.grants(version)
        if ranks:
            message = np.array([GRANT, version], np.int64).tobytes() + weights().tobytes()
            for rank in ranks:
                self._channel.post(message, rank, ORDER_TAG)

    def _receive_blocks(self) -> None:
        while (found := self._channel.poll(ANY, BLOCK_TAG)) is not None:
            self._arrived(found[0], self._codec.decode(found[1]))

    def _receive_answers(self, order: int) -> None:
        tag = GOODBYE_TAG if order == STOP else STATE_TAG
        while (found := self._channel.poll(ANY, tag)) is not None:
            rank, message = found
            sent, dropped = message[:16].view(np.int64).tolist()
            self._answered(rank, sent, dropped, decode_arrays(message[16:]))

    def _order_all(self, order: int) -> None:
        header = np.array([order, 0], np.int64).tobytes()
        for rank in self._ranks:
            self._channel.post(header, rank, ORDER_TAG)
