"""The one-sided workflow: actors and learners read and write each other's memory, nobody replies.

Blocks wait in a pool on the actor (``distributed``) or on its learner (``central``); the newest
weights stand on a board on learner 0, beside a few words that all share: a bitmap of actors with
data, what each actor is acting with, and whether to stop.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.comm.messages import ANY
from exarl.comm.probe import BUSY_S, one_sided_latency
from exarl.comm.wait import wait_for
from exarl.comm.window import WORD
from exarl.types import ACTOR_PHASES, Arrays, Block
from exarl.workflows import sync
from exarl.workflows.async_ import AsyncConfig, TwoSidedSink, TwoSidedSource
from exarl.workflows.asynchronous import act, begin, lead
from exarl.workflows.base import ExaWorkflow, Experiment, Tally
from exarl.workflows.pacing import feasible
from exarl.workflows.shared import RmaConfig, Shared

log = logging.getLogger(__name__)

STATE_TAG, GOODBYE_TAG = 3, 4
_CHECK_EVERY_S = 0.05


class Rma(ExaWorkflow):
    """Nobody waits for a reply; a full queue is the only brake."""

    Config = RmaConfig
    many_learners = True
    lags = True

    def run(self, learner: Experiment) -> None:
        if learner.layout.alone:
            sync.lead(learner, sync.Alone(learner))  # one process takes turns: lag 0
            return
        first = begin(learner, self.config)
        if self.config.probe and not _progresses(learner):
            self._by_messages(learner, first)
            return
        shared = Shared(learner, self.config)
        if learner.role.learns:
            lead(learner, OneSidedSource(learner, self.config, shared), self.config.bounded)
        else:
            act(learner, OneSidedSink(learner, self.config, shared), first)
        shared.close()

    def _by_messages(self, learner: Experiment, first: Block | None) -> None:
        config = AsyncConfig(self.config.max_policy_lag, self.config.average_every)
        if learner.role.learns:
            lead(learner, TwoSidedSource(learner, config), config.bounded)
        else:
            act(learner, TwoSidedSink(learner), first)


def _progresses(learner: Experiment) -> bool:
    """The start-up probe; learner 0 warns when one-sided access is not worth its name."""
    layout = learner.layout
    assert learner.channel is not None
    ranks = [*range(layout.learners), *layout.actor_ranks()]
    latency = one_sided_latency(learner.channel, ranks, layout.actor_rank(0))
    works = latency < BUSY_S / 4
    if learner.role.rank == 0:
        if works:
            log.info("one-sided access takes %.1f us while the target computes", latency * 1e6)
        else:
            log.warning(
                "this MPI library finishes a one-sided access only when its target calls MPI"
                " (%.0f ms): using messages instead",
                latency * 1e3,
            )
    return works


@dataclass(frozen=True)
class Answer:
    """An actor's word on itself: blocks handed over, dropped for want of room, given up; its state."""

    sent: int
    dropped: int
    abandoned: int
    state: Arrays


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
        self._send_state(GOODBYE_TAG, state, self._dropped, tally.dropped)
        self._channel.flush()

    def _may_begin(self) -> bool | None:
        """True: act; False: stop; None: the bound on the lag says to wait."""
        if self._window.get(0, Shared.STOP):
            return False
        if (asked := self._window.get(0, Shared.ASK)) > self._asked:
            self._asked = asked
            self._send_state(STATE_TAG, self._rollout.state())
        if not self._version and not self._shared.board.version():
            return None
        if self._config.max_policy_lag is None:
            return True
        begun = self._window.get(0, Shared.BEGUN)
        if begun - self._window.get(0, Shared.TRAINED) > self._config.max_policy_lag:
            return None
        return True if self._window.swap_if(0, Shared.BEGUN, begun, begun + 1) else None

    def _send_state(self, tag: int, state: Arrays, dropped: int = 0, abandoned: int = 0) -> None:
        header = np.array([self._sent, dropped, abandoned], np.int64).tobytes()
        self._channel.post(header + encode_arrays(state), self._learner, tag)


class OneSidedSource:
    """A learner's end of the window."""

    def __init__(self, learner: Experiment, config: RmaConfig, shared: Shared) -> None:
        assert learner.channel is not None
        layout, rank = learner.layout, learner.role.rank
        self._shared, self._window = shared, shared.window
        self._config = config
        self._codec, self._channel = learner.codec, learner.channel
        self._first = rank == 0
        self._own = [a for a in range(layout.actors) if layout.learner_of(a) == rank]
        self._ranks = {layout.actor_rank(actor): actor for actor in self._own}
        self._random = random.Random(f"{learner.config.seed} {rank}")
        self._held: list[tuple[int, int, Block]] = []  # actor, its block's number, the block
        # Actors of a central pool share it, and what was read of it.
        central = config.location == "central"
        self._pool_of = [layout.learner_of(a) if central else a for a in range(layout.actors)]
        self._seen = dict.fromkeys(self._pool_of, 0)  # newest number read of each pool
        self._record: list[tuple[int, int, Block]] | None = None
        self._answers: dict[int, Answer] = {}  # by actor
        self._got = self._redundant = self._asked = 0

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
        if self._first:
            self._window.set(0, Shared.ASK, self._asked)

    def states(self) -> tuple[Arrays, list[Block]] | None:
        assert self._record is not None
        self._receive_answers(STATE_TAG)
        if len(self._answers) < len(self._own):
            return None
        for actor in self._own:  # what was pushed before the answer is in the pools or here
            self._empty(actor)
        blocks = [
            block
            for actor, number, block in self._record
            if actor not in self._answers or number <= self._answers[actor].sent
        ]
        self._record = None
        return self._joined(), blocks

    def stop(self, patience: float | None) -> tuple[Arrays, list[Block], Tally]:
        if self._first:
            self._window.set(0, Shared.STOP, 1)
        self._answers, self._record = {}, None
        deadline = None if patience is None else time.monotonic() + patience

        def all_here() -> bool | None:
            self._receive_answers(GOODBYE_TAG)
            late = deadline is not None and time.monotonic() > deadline
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
        return (
            self._joined(),
            left,
            Tally(
                produced,
                dropped=dropped,
                missing=len(self._own) - len(self._answers),
                redundant=self._redundant,
            ),
        )

    def _fetch(self) -> bool:
        """Take a block from an actor that has data: an own one first, then anybody's."""
        ready = self._shared.with_data()
        if self._config.window_selection == "assigned" or self._record is not None:
            # Others are helped only where a block can be taken away: a buffer would be read twice.
            helps = self._record is None and self._config.structure != "buffer"
            own = [actor for actor in ready if actor in self._own]
            ready = own if own or not helps else ready
        if not ready:
            return False
        actor = self._random.choice(ready)
        self._shared.claim(actor)
        taken = self._pop(actor)
        if self._shared.pools[actor].filled():
            self._shared.announce(actor)
        return taken

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
        if self._record is not None:
            self._record.append(entry)
        return True

    def _places(self) -> list[int]:
        """One actor for each pool that this learner answers for."""
        return self._own if self._config.location == "distributed" else self._own[:1]

    def _receive_answers(self, tag: int) -> None:
        while (found := self._channel.poll(ANY, tag)) is not None:
            rank, message = found
            sent, dropped, abandoned = message[: 3 * WORD].view(np.int64).tolist()
            state = decode_arrays(message[3 * WORD :])
            self._answers[self._ranks[rank]] = Answer(sent, dropped, abandoned, state)

    def _joined(self) -> Arrays:
        return {n: a for answer in self._answers.values() for n, a in answer.state.items()}
