"""The asynchronous workflow: non-blocking messages between each actor and its learner."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.comm.messages import ANY, GRANT, SEND_STATE, STOP
from exarl.config import param
from exarl.errors import ConfigError
from exarl.training.actors import Tally
from exarl.types import ACTOR_PHASES, Arrays, Block
from exarl.workflows import sync
from exarl.workflows.base import ExaWorkflow, Experiment
from exarl.workflows.block_source import PacedSource
from exarl.workflows.lagging_loops import LaggingConfig, act, book_of, lead
from exarl.workflows.pacer import Pacer

ORDER_TAG, BLOCK_TAG, ANSWER_TAG = 1, 2, 3
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

    def ready(self, learner: Experiment) -> None:
        check_actors(learner)

    def run(self, learner: Experiment) -> None:
        if learner.layout.alone:
            sync.lead(learner, sync.Alone(learner))  # one process takes turns: lag 0
        elif learner.role.learns:
            lead(learner, TwoSidedSource(learner, self.config), self.config.bounded)
        else:
            act(learner, TwoSidedSink(learner), self.config)


def check_actors(learner: Experiment) -> None:
    """ConfigError when a learner would never see a block: each has its own actors' alone."""
    layout = learner.layout
    if learner.role.rank == 0 and layout.learners > layout.actors:  # one line is enough
        raise ConfigError(
            f"learner_procs={layout.learners} needs at least as many actors, not {layout.actors}:"
            " messages bring a learner the blocks of its own actors only"
        )


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
        self._states_wanted = 0
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
        self._send_state(STOP, state, tally.dropped)

    def _read_orders(self) -> None:
        while (found := self._channel.poll(self._learner, ORDER_TAG)) is not None:
            self._obey(found[1])

    def _obey(self, message: np.ndarray) -> None:
        order = int(message[:8].view(np.int64)[0])
        if order == GRANT:
            self._grants += 1
            self._newest = message
        elif order == SEND_STATE:
            self._states_wanted += 1
        else:
            self._stop = True

    def _answer(self) -> None:
        while self._states_wanted:
            self._states_wanted -= 1
            self._send_state(SEND_STATE, self._rollout.state(), 0)

    def _send_state(self, order: int, state: Arrays, dropped: int) -> None:
        # One tag for all answers: the last one comes after all others, so none is left behind.
        header = np.array([order, self._sent, dropped], np.int64).tobytes()
        self._channel.post(header + encode_arrays(state), self._learner, ANSWER_TAG)


class TwoSidedSource(PacedSource):
    """A learner's end of the messages with the actors assigned to it."""

    def __init__(self, learner: Experiment, config: AsyncConfig) -> None:
        assert learner.channel is not None
        self._channel = learner.channel
        self._codec = learner.codec
        ranks = learner.layout.actor_ranks_of(learner.role.rank)
        lag, ahead = config.max_policy_lag, config.blocks_ahead
        pacer = Pacer(ranks, max_lag=lag, ahead=ahead, order=config.order)
        super().__init__(ranks, pacer, book_of(learner, config.state_timeout))

    def publish(self, weights: Callable[[], np.ndarray], version: int, trained: int) -> None:
        ranks = self._pacer.grants(version)
        if ranks:
            message = np.array([GRANT, version], np.int64).tobytes() + weights().tobytes()
            for rank in ranks:
                self._channel.post(message, rank, ORDER_TAG)

    def _receive_blocks(self) -> None:
        while (found := self._channel.poll(ANY, BLOCK_TAG)) is not None:
            self._arrived(found[0], self._codec.decode(found[1]))

    def _receive_answers(self) -> None:
        while (found := self._channel.poll(ANY, ANSWER_TAG)) is not None:
            rank, message = found
            order, sent, dropped = message[:24].view(np.int64).tolist()
            self._answered(rank, order, sent, dropped, decode_arrays(message[24:]))

    def _order_all(self, order: int) -> None:
        header = np.array([order, 0], np.int64).tobytes()
        for rank in self._ranks:
            self._channel.post(header, rank, ORDER_TAG)
