"""The one-sided workflow: actors and learners read and write each other's memory, nobody replies.

Blocks wait in a pool on the actor (``distributed``) or on its learner (``central``); the newest
weights stand on a board on learner 0, beside a few words that all share: which actors have
data, what each actor is acting with, and whether to stop.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.comm.messages import ANY
from exarl.comm.mpi import meet, on_this_machine
from exarl.comm.probe import BUSY_S, near_and_far, one_sided_latency
from exarl.comm.wait import wait_for
from exarl.comm.window import WORD
from exarl.errors import Stopped
from exarl.training.actors import Tally
from exarl.training.snapshot import Snapshot
from exarl.types import ACTOR_PHASES, Arrays, Block
from exarl.workflows import sync
from exarl.workflows.async_workflow import AsyncConfig, TwoSidedSink, TwoSidedSource, check_actors
from exarl.workflows.base import ExaWorkflow, Experiment
from exarl.workflows.lagging_loops import LaggingConfig, act, book_of, lead
from exarl.workflows.pacer import feasible
from exarl.workflows.rma_memory import RmaConfig, Shared

log = logging.getLogger(__name__)

ANSWER_TAG = 3
GOODBYE = 0
"""Instead of the number of the checkpoint that an actor answers to: its last answer."""
_CHECK_EVERY_S = 0.05


class Rma(ExaWorkflow):
    """Nobody waits for a reply; a full queue is the only brake."""

    Config = RmaConfig
    one_sided = True
    many_learners = True
    lags = True

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self._latency: float | None = None  # of a one-sided access, where it was measured
        self._shared: Shared | None = None  # None: messages are used

    def ready(self, learner: Experiment) -> None:
        """The window is made when all have their environments, and before anyone acts or compiles:
        it takes all ranks, and none should wait for another's first block."""
        if learner.layout.alone:
            return
        meet(learner.players, partial(_obey_signals, learner))
        if self.config.probe:
            self._latency = _measure(learner)
        if self._latency is None or self._latency < BUSY_S / 4:
            self._shared = Shared(learner, self.config)
        else:
            check_actors(learner)

    def run(self, learner: Experiment) -> None:
        if learner.layout.alone:
            sync.lead(learner, sync.Alone(learner))  # one process takes turns: lag 0
        elif self._shared is None:
            self._by_messages(learner)
        elif learner.role.learns:
            if self._latency is not None:
                microseconds = self._latency * 1e6
                log.info("one-sided access takes %.1f us while the target computes", microseconds)
            source = OneSidedSource(learner, self.config, self._shared)
            lead(learner, source, self.config.bounded)
        else:
            act(learner, OneSidedSink(learner, self.config, self._shared), self.config)
        if self._shared is not None and not learner.missing_actors:  # else the job is to be aborted
            self._shared.close()

    def _by_messages(self, learner: Experiment) -> None:
        common = {f.name: getattr(self.config, f.name) for f in dataclasses.fields(LaggingConfig)}
        config = AsyncConfig(**common)
        if not learner.role.learns:
            act(learner, TwoSidedSink(learner), config)
            return
        if learner.role.rank == 0:
            log.warning(
                "this MPI library finishes a one-sided access only when its target calls MPI"
                " (%.0f ms): using messages instead",
                (self._latency or 0.0) * 1e3,
            )
        lead(learner, TwoSidedSource(learner, config), config.bounded)


def _measure(learner: Experiment) -> float:
    """The start-up probe, near and far."""
    layout = learner.layout
    assert learner.channel is not None
    ranks = [*range(layout.learners), *layout.actor_ranks()]
    here = [ranks[player] for player in on_this_machine(learner.players)]
    return one_sided_latency(learner.channel, ranks, near_and_far(layout.actor_ranks(), here))


def _obey_signals(learner: Experiment) -> None:
    """On learner 0, end the job if a stop signal has come: there is nothing yet to be kept."""
    if learner.role.rank == 0 and learner.signals.received is not None:
        raise Stopped(learner.signals.received)


class Answer(NamedTuple):
    """An actor's word on itself: blocks handed over, dropped for want of room, and given up."""

    sent: int
    dropped: int
    abandoned: int


class OneSidedSink:
    """An actor's end of the window."""

    def __init__(self, learner: Experiment, config: RmaConfig, shared: Shared) -> None:
        assert learner.channel is not None and learner.role.group is not None
        self._shared = shared
        self._window = shared.window
        self._actor = learner.role.group
        self._pool = shared.pools[self._actor]
        self._config = config
        self._channel = learner.channel
        self._learner = learner.layout.learner_of(self._actor)
        self._agent, self._rollout = learner.agent, learner.rollout
        self._codec, self._clock = learner.codec, learner.clock
        self._version = 0  # on the board versions start at 1
        self._sent = self._asked = self._dropped = 0
        self._checked = 0.0

    def leave(self) -> int | None:
        with self._clock.phase("wait"):
            if wait_for(self._may_begin) is False:
                return None
        # Announce a version before taking the weights: whatever is trained from now on counts with
        # this block, and what was trained before is in the weights.
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
        for phase in ("wait", "send"):
            block.seconds[ACTOR_PHASES.index(phase)] = spent.get(phase, 0.0)
        self._sent += 1
        head = np.array([self._actor, self._sent], np.int64).view(np.uint8)
        payload = np.concatenate([head, self._codec.encode(block)])
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
                self._dropped += 1  # told to stop while there was no room
            if gave_way := self._pool.overwritten - before:
                self._window.add(0, Shared.TRAINED, gave_way)  # nobody needs to wait for them
        self._window.set(0, self._shared.acting + WORD * self._actor, 0)

    def close(self, state: Arrays, tally: Tally) -> None:
        self._send_state(GOODBYE, state, tally.dropped)

    def _may_begin(self) -> bool | None:
        """True: act; False: stop; None: the bound on the lag says to wait."""
        if self._window.get(0, Shared.STOP):
            return False
        if (asked := self._window.get(0, Shared.ASK)) > self._asked:
            self._asked = asked
            self._send_state(asked, self._rollout.state())
        if not self._version and not self._shared.board.version():
            return None
        if self._config.max_policy_lag is None:
            return True
        begun = self._window.get(0, Shared.BEGUN)
        if begun - self._window.get(0, Shared.TRAINED) > self._config.max_policy_lag:
            return None
        return True if self._window.swap_if(0, Shared.BEGUN, begun, begun + 1) else None

    def _send_state(self, asked: int, state: Arrays, abandoned: int = 0) -> None:
        # One tag for all answers: the last one comes after all others, so none is left behind.
        header = np.array([asked, self._sent, self._dropped, abandoned], np.int64).tobytes()
        self._channel.post(header + encode_arrays(state), self._learner, ANSWER_TAG)


class OneSidedSource:
    """A learner's end of the window."""

    def __init__(self, learner: Experiment, config: RmaConfig, shared: Shared) -> None:
        assert learner.channel is not None
        layout, rank = learner.layout, learner.role.rank
        self._shared, self._window = shared, shared.window
        self._config = config
        self._codec, self._channel = learner.codec, learner.channel
        self._first, self._learners = rank == 0, layout.learners
        self._own = [a for a in range(layout.actors) if layout.learner_of(a) == rank]
        self._ranks = {layout.actor_rank(actor): actor for actor in self._own}
        self._random = random.Random(f"{learner.config.seed} {rank}")
        self._held: list[tuple[int, int, Block]] = []  # actor, its block's number, the block
        # Actors of a central pool share it, and what was read of it.
        central = config.location == "central"
        self._pool_of = [layout.learner_of(a) if central else a for a in range(layout.actors)]
        self._seen = dict.fromkeys(self._pool_of, 0)  # newest number read of each pool
        self._record: list[tuple[int, int, Block]] | None = None
        self._book = book_of(learner, config.state_timeout)  # by rank
        self._answers: dict[int, Answer] = {}  # by actor, to what was asked last
        self._got = self._redundant = self._asked = self._complete = 0
        self._stopping = False

    def publish(self, weights: Callable[[], np.ndarray], version: int, trained: int) -> None:
        if self._first:
            self._shared.board.write(weights(), version + 1)
            self._window.add(0, Shared.TRAINED, trained)

    def take(self, version: int) -> Block | None:
        if self._config.max_policy_lag is not None:
            return self._take_in_time(version, self._config.max_policy_lag)
        if not self._held:
            self._fetch()
        return self._held.pop(0)[2] if self._held else None

    def _take_in_time(self, version: int, max_lag: int) -> Block | None:
        """The block that acted longest ago, if the others and those being acted can wait."""
        # In this order: a block finished in between is then counted twice rather than not at all.
        acting = self._window.words(0, self._shared.acting, self._shared.actors).tolist()
        while self._fetch():
            pass
        if not self._held:
            return None
        choice = min(range(len(self._held)), key=lambda i: self._held[i][2].version)
        versions = [held[2].version for held in self._held]
        late = not feasible(versions, version, max_lag)  # through other learners: do not wait
        others = [v - 1 for v in acting if v] + versions[:choice] + versions[choice + 1 :]
        go = late or feasible(others, version + 1, max_lag)
        return self._held.pop(choice)[2] if go else None

    def ask_states(self) -> None:
        self._record, self._answers = list(self._held), {}
        self._asked += 1
        self._book.ask(self._ranks)
        if self._first:
            self._window.set(0, Shared.ASK, self._asked)

    def states(self) -> Snapshot | None:
        assert self._record is not None
        self._receive_answers()
        if not self._book.settled():
            return None
        for actor in self._own:  # what was pushed before the answer is in the pools or here
            self._empty(actor)
        blocks = [
            block
            for actor, number, block in self._record
            if actor not in self._answers or number <= self._answers[actor].sent
        ]
        self._record = None
        self._window.add(0, Shared.COLLECTED, 1)
        return Snapshot(self._book.joined(), blocks, self._book.silent())

    def stop(self, patience: float | None) -> tuple[Snapshot, Tally]:
        self._stopping = True
        self._answers, self._record = {}, None
        if self._first:
            self._window.set(0, Shared.STOP, 1)
        deadline = time.monotonic() + (self._book.timeout if patience is None else patience)

        def all_here() -> bool | None:
            self._receive_answers()
            late = time.monotonic() > deadline
            return True if late or len(self._answers) == len(self._own) else None

        wait_for(all_here)
        for actor in self._own:
            self._empty(actor)
        left = [block for _, _, block in self._held]
        # A buffer never gives an older block than it gave before: those will not be read any more.
        pools = [self._shared.pools[actor] for actor in self._places()]
        lost = sum(pool.dropped() + pool.filled() for pool in pools)
        answers = list(self._answers.values())
        dropped = lost + sum(answer.dropped + answer.abandoned for answer in answers)
        produced = sum(answer.sent + answer.abandoned for answer in answers)
        log.info("%d blocks read, %d of them again", self._got, self._redundant)
        silent = [rank for rank, actor in self._ranks.items() if actor not in self._answers]
        tally = Tally(produced, dropped=dropped, missing=len(silent), redundant=self._redundant)
        return Snapshot(self._book.joined(), left, silent), tally

    def _fetch(self) -> bool:
        """Take a block from an actor that has data: an own one first, then anybody's."""
        ready = self._shared.with_data()
        own = [actor for actor in ready if actor in self._own]
        if self._config.window_selection == "assigned" and (
            own or self._config.structure == "buffer"
        ):
            # Others are helped only where a block can be taken away: a buffer would be read twice.
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
        snapshot, since it would lack them."""
        if self._complete < self._asked and self._record is None:
            collected = self._window.get(0, Shared.COLLECTED)
            if collected == self._asked * self._learners:
                self._complete = self._asked
        return self._complete == self._asked

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
        origin, number = item.payload[: 2 * WORD].view(np.int64).tolist()
        entry = (origin, number, self._codec.decode(item.payload[2 * WORD :]))
        self._held.append(entry)
        self._book.saw(entry[2])
        if self._record is not None:
            self._record.append(entry)
        return True

    def _places(self) -> list[int]:
        """One actor for each pool that this learner answers for."""
        return self._own if self._config.location == "distributed" else self._own[:1]

    def _receive_answers(self) -> None:
        while (found := self._channel.poll(ANY, ANSWER_TAG)) is not None:
            rank, message = found
            asked, *counts = message[: 4 * WORD].view(np.int64).tolist()
            current = asked == (GOODBYE if self._stopping else self._asked)
            self._book.told(rank, decode_arrays(message[4 * WORD :]), owes=not current)
            if current:  # else for a checkpoint that went on without it, or that the end overtook
                self._answers[self._ranks[rank]] = Answer(*counts)
