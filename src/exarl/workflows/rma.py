"""The one-sided workflow: actors and learners read and write each other's memory without replies.

Blocks wait in a pool on the actor (``distributed``) or on its learner (``central``). The newest
weights are on a board on learner 0, next to a few shared words: which actors have data, the version
that each actor acts with, and whether to stop.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from exarl.comm.channel import meet, on_this_machine
from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.comm.messages import LAST, ActorState, Tag, decode, encode
from exarl.comm.pacer import may_begin, oldest_in_time
from exarl.comm.probe import BUSY_S, near_and_far, one_sided_latency
from exarl.comm.transport import ANY
from exarl.comm.waiting import wait_for
from exarl.comm.window import WORD
from exarl.errors import Stopped
from exarl.training.actors import Tally
from exarl.training.process import Actor, Learner, RunOutcome, RunProcess
from exarl.training.snapshot import SentBlock, Snapshot
from exarl.types import Arrays, Block, timed
from exarl.workflows import sync
from exarl.workflows.async_workflow import AsyncConfig, TwoSidedSink, TwoSidedSource, check_actors
from exarl.workflows.base import ExaWorkflow
from exarl.workflows.lagging_loops import LaggingConfig, act, learn, tracker_of
from exarl.workflows.rma_memory import RmaConfig, Shared

log = logging.getLogger(__name__)

_CHECK_EVERY_S = 0.05


class Rma(ExaWorkflow):
    """No process waits for a reply; actors wait only while a queue is full."""

    Config = RmaConfig
    one_sided = True
    many_learners = True
    lags = True

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self._latency: float | None = None  # of a one-sided access, where it was measured
        self._shared: Shared | None = None  # None: messages are used

    def ready(self, process: RunProcess) -> None:
        """Make the window when all ranks have their environments and before any acts or compiles: it
        takes all ranks, and none should wait for another's first block."""
        if process.layout.alone:
            return
        assert process.players is not None
        meet(process.players, partial(_obey_signals, process))
        if self.config.probe:
            self._latency = _measure(process)
        if self._latency is None or self._latency < BUSY_S / 4:
            self._shared = Shared(process, self.config)
        else:
            check_actors(process)

    def learn(self, learner: Learner) -> RunOutcome:
        if learner.actor is not None:
            return sync.learn(learner, sync.actors_of(learner))  # one process takes turns: lag 0
        if self._shared is None:
            if learner.role.rank == 0:
                log.warning(
                    "this MPI library finishes a one-sided access only when its target calls MPI"
                    " (%.0f ms): using messages instead",
                    (self._latency or 0.0) * 1e3,
                )
            config = self._by_messages()
            messages = TwoSidedSource(learner, config)
            return learn(learner, messages, config.bounded, config.blocks_together)
        if self._latency is not None:
            microseconds = self._latency * 1e6
            log.info("one-sided access takes %.1f us while the target computes", microseconds)
        source = OneSidedSource(learner, self.config, self._shared)
        outcome = learn(learner, source, self.config.bounded, self.config.blocks_together)
        if not outcome.missing_actors:  # else the job will be aborted
            self._shared.close()
        return outcome

    def act(self, actor: Actor) -> RunOutcome:
        if self._shared is None:
            return act(actor, TwoSidedSink(actor), self._by_messages())
        outcome = act(actor, OneSidedSink(actor, self.config, self._shared), self.config)
        self._shared.close()
        return outcome

    def _by_messages(self) -> AsyncConfig:
        """The parameters of the asynchronous workflow that takes this one's place."""
        common = {f.name: getattr(self.config, f.name) for f in dataclasses.fields(LaggingConfig)}
        return AsyncConfig(**common)


def _measure(process: RunProcess) -> float:
    """The latency of a one-sided access, on this machine and to another."""
    layout = process.layout
    assert process.channel is not None and process.players is not None
    ranks = [*range(layout.learners), *layout.actor_ranks()]
    here = [ranks[player] for player in on_this_machine(process.players)]
    return one_sided_latency(process.channel, ranks, near_and_far(layout.actor_ranks(), here))


def _obey_signals(process: RunProcess) -> None:
    """On learner 0, end the job if a stop signal has come: there is nothing to be saved yet."""
    if process.role.rank == 0 and process.signals.received is not None:
        raise Stopped(process.signals.received)


class OneSidedSink:
    """An actor's end of the window."""

    def __init__(self, actor: Actor, config: RmaConfig, shared: Shared) -> None:
        assert actor.channel is not None and actor.role.group is not None
        self._shared = shared
        self._window = shared.window
        self._actor = actor.role.group
        self._pool = shared.pools[self._actor]
        self._config = config
        self._channel = actor.channel
        self._learner = actor.layout.learner_of(self._actor)
        self._agent, self._rollout = actor.agent, actor.rollout
        self._codec, self._clock = actor.codec, actor.clock
        self._version = 0  # on the board versions start at 1
        self._sent = self._asked = self._dropped = 0
        self._checked = 0.0

    def wait_for_grant(self, holding: bool = False) -> int | None:
        with self._clock.phase("wait"):
            if wait_for(partial(self._may_begin, holding)) is False:
                return None
        # Announce a version before reading the weights: blocks trained from now on count for this
        # block's lag, and those trained before are in the weights.
        acting = self._shared.acting + WORD * self._actor
        self._window.set(0, acting, self._shared.board.version())
        if (found := self._shared.board.read(self._version)) is not None:
            weights, self._version = found
            self._agent.set_weights(weights)
        self._window.set(0, acting, self._version)
        return self._version - 1

    def stopped(self) -> bool:
        now = time.perf_counter()
        if now - self._checked < _CHECK_EVERY_S:
            return False
        self._checked = now
        return bool(self._window.get(0, Shared.STOP))

    def put(self, block: Block) -> None:
        spent = self._clock.take()
        block = timed(block, {phase: spent.get(phase, 0.0) for phase in ("wait", "send")})
        self._sent += 1
        payload = self._codec.encode(block, self._channel.rank, self._sent)
        overwrite = self._config.when_full == "overwrite"

        def pushed() -> bool | None:
            if self._pool.push(payload, overwrite=overwrite):
                return True
            return False if self.stopped() else None

        with self._clock.phase("send"):
            before = self._pool.overwritten
            if wait_for(pushed):
                self._shared.announce(self._actor)
            else:
                self._dropped += 1  # the run stopped while there was no room
            if gave_way := self._pool.overwritten - before:
                self._window.add(0, Shared.TRAINED, gave_way)  # no actor needs to wait for them
        self._window.set(0, self._shared.acting + WORD * self._actor, 0)

    def close(self, state: Arrays, tally: Tally) -> None:
        self._send_state(LAST, state, tally.dropped)

    def _may_begin(self, holding: bool) -> bool | None:
        """True: act; False: stop; None: wait, because of the bound on the lag."""
        if self._window.get(0, Shared.STOP):
            return False
        if not holding and (asked := self._window.get(0, Shared.ASK)) > self._asked:
            self._asked = asked
            self._send_state(asked, self._rollout.state())
        if not self._version and not self._shared.board.version():
            return None
        if (max_lag := self._config.max_policy_lag) is None:
            return True
        begun = self._window.get(0, Shared.BEGUN)
        if not may_begin(begun, self._window.get(0, Shared.TRAINED), max_lag):
            return None
        return True if self._window.swap_if(0, Shared.BEGUN, begun, begun + 1) else None

    def _send_state(self, snapshot: int, state: Arrays, abandoned: int = 0) -> None:
        # One tag for all answers: the last one comes after all others, so none is left behind.
        answer = ActorState(snapshot, self._sent, self._dropped, abandoned)
        self._channel.post(encode(answer, encode_arrays(state)), self._learner, Tag.STATE)


class OneSidedSource:
    """A learner's end of the window."""

    def __init__(self, learner: Learner, config: RmaConfig, shared: Shared) -> None:
        assert learner.channel is not None
        layout, rank = learner.layout, learner.role.rank
        self._shared, self._window = shared, shared.window
        self._config = config
        self._codec, self._channel = learner.codec, learner.channel
        self._first, self._learners = rank == 0, layout.learners
        self._own = [a for a in range(layout.actors) if layout.learner_of(a) == rank]
        self._served = frozenset(self._own)  # the same, to look up
        self._ranks = layout.actor_ranks_of(rank)
        self._random = random.Random(f"{learner.config.seed} {rank}")
        self._held: list[SentBlock] = []  # not trained yet
        # Actors of a central pool share it, and what was read of it.
        central = config.location == "central"
        self._pool_of = [layout.learner_of(a) if central else a for a in range(layout.actors)]
        self._seen = dict.fromkeys(self._pool_of, 0)  # newest number read of each pool
        self._tracker = tracker_of(learner, config.state_timeout)  # by rank
        self._got = self._redundant = self._complete = 0

    def publish(self, weights: Callable[[], np.ndarray], version: int, trained: int) -> None:
        if self._first:
            self._shared.board.write(weights(), version + 1)
            self._window.add(0, Shared.TRAINED, trained)

    def take(self, version: int) -> Block | None:
        if self._config.max_policy_lag is not None:
            return self._take_in_time(version, self._config.max_policy_lag)
        if not self._held:
            self._fetch()
        return self._held.pop(0).block if self._held else None

    def _take_in_time(self, version: int, max_lag: int) -> Block | None:
        """The block that acted longest ago, if the others and those being acted can wait."""
        # In this order, so that a block finished in between is counted twice rather than not at all.
        acting = self._window.words(0, self._shared.acting, self._shared.actors).tolist()
        while self._fetch():
            pass
        versions = [held.block.version for held in self._held]
        choice = oldest_in_time(versions, [v - 1 for v in acting if v], version, max_lag)
        return None if choice is None else self._held.pop(choice).block

    def ask_states(self) -> None:
        number = self._tracker.begin(self._ranks, self._held)
        if self._first:
            self._window.set(0, Shared.ASK, number)

    def states(self) -> Snapshot | None:
        self._receive_answers()
        if not self._tracker.settled():
            return None
        for actor in self._own:  # what was pushed before the answer is in the pools or here
            self._empty(actor)
        self._window.add(0, Shared.COLLECTED, 1)
        return self._tracker.snapshot()

    def stop(self, patience: float | None) -> tuple[Snapshot, Tally]:
        self._tracker.begin_last()
        answers = self._tracker.answers
        if self._first:
            self._window.set(0, Shared.STOP, 1)
        deadline = time.monotonic() + (self._tracker.timeout if patience is None else patience)

        def all_here() -> bool | None:
            self._receive_answers()
            late = time.monotonic() > deadline
            return True if late or len(answers) == len(self._ranks) else None

        wait_for(all_here)
        for actor in self._own:
            self._empty(actor)
        left = [held.block for held in self._held]
        # Unread blocks of a buffer that are older than the last one read are never read.
        pools = [self._shared.pools[actor] for actor in self._places()]
        lost = sum(pool.dropped() + pool.filled() for pool in pools)
        dropped = lost + sum(answer.dropped + answer.abandoned for answer in answers.values())
        produced = sum(answer.sent + answer.abandoned for answer in answers.values())
        log.info("%d blocks read, %d of them again", self._got, self._redundant)
        silent = [rank for rank in self._ranks if rank not in answers]
        tally = Tally(produced, dropped=dropped, missing=len(silent), redundant=self._redundant)
        return Snapshot(self._tracker.states(), left, silent), tally

    def _fetch(self) -> bool:
        """Take a block from an actor that has data: one of this learner's first, then any other."""
        ready = self._shared.with_data()
        own = [actor for actor in ready if actor in self._served]
        if self._config.window_selection == "assigned" and (
            own or self._config.structure == "buffer"
        ):
            # Other learners' blocks only where reading removes them: a buffer would be read twice.
            ready = own
        elif ready and not self._may_help():
            ready = own
        if not ready:
            return False
        actor = self._random.choice(ready)
        self._shared.claim(actor)
        taken = self._pop(actor)
        if self._shared.pools[actor].filled():
            self._shared.announce(actor)
        return taken

    def _may_help(self) -> bool:
        """Whether blocks of other learners' actors may be taken: not while any learner collects a
        snapshot, which would then lack them."""
        asked = self._tracker.number
        if self._complete < asked and not self._tracker.under_way:
            collected = self._window.get(0, Shared.COLLECTED)
            if collected == asked * self._learners:
                self._complete = asked
        return self._complete == asked

    def _empty(self, actor: int) -> None:
        while self._pop(actor):
            pass

    def _pop(self, actor: int) -> bool:
        again = self._config.structure == "buffer"
        pool = self._pool_of[actor]
        item = self._shared.pools[actor].pop(self._seen[pool] if again else 0)
        if item is None:
            return False
        self._got += 1
        self._seen[pool] = item.sequence
        self._redundant += item.again
        head, block = self._codec.decode_numbered(item.payload)
        sent = SentBlock(head.sender, head.number, block)
        self._held.append(sent)
        self._tracker.arrived(sent)
        return True

    def _places(self) -> list[int]:
        """One actor for each pool that this learner is responsible for."""
        return self._own if self._config.location == "distributed" else self._own[:1]

    def _receive_answers(self) -> None:
        while (found := self._channel.poll(ANY, Tag.STATE)) is not None:
            answer, states = decode(found[1], ActorState)
            self._tracker.answered(found[0], answer, decode_arrays(states))
