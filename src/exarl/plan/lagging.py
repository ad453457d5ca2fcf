"""Actors that do not wait for each other, and the rounds of their learners: a heap of events.

Who may act, and what is trained next, is decided by the code of real runs (``comm.pacer``): by grants
where messages connect the two sides, by the counts in a window where memory does.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from exarl.comm.pacer import Pacer, may_begin, oldest_in_time
from exarl.comm.waiting import pause
from exarl.plan.costs import Costs, round_seconds
from exarl.plan.forecast import PlannedRun

_ROUND = -1
"""Stands for an actor in the event that ends a round."""


@dataclass
class Seen:
    """What was seen between two moments."""

    blocks: int = 0
    rounds: int = 0
    lags: int = 0
    lag_max: int = 0
    seconds: float = 0.0
    busy: float = 0.0  # of the learners
    idle: float = 0.0  # of all actors together


class Connection(Protocol):
    """How actors and learners are connected."""

    def publish(self, version: int, trained: int) -> list[int]:
        """Offer new weights; the actors that may begin a block because of it, once for each block."""

    def begin(self, actor: int) -> int | None:
        """The version that an actor begins its next block with now; None: it has to wait."""

    def put(self, actor: int, version: int) -> bool:
        """Hand over a block; False if there is no room yet: ``room`` says when there is."""

    def take(self, learner: int, version: int) -> int | None:
        """The version that the block to train next was acted with, if there is one now."""

    def room(self) -> list[int]:
        """Actors whose block has found room since the last call."""


class Messages:
    """Grants and blocks as messages: ``async`` and ``elastic``."""

    def __init__(self, run: PlannedRun) -> None:
        self._learners = run.learners
        own: list[list[int]] = [
            list(range(learner, run.actors, run.learners)) for learner in range(run.learners)
        ]
        self._pacers = [
            Pacer(actors, max_lag=run.max_policy_lag, ahead=run.blocks_ahead) for actors in own
        ]
        self._grants = [0] * run.actors
        self._newest = [0] * run.actors
        self._inbox: list[deque[int]] = [deque() for _ in range(run.actors)]

    def publish(self, version: int, trained: int) -> list[int]:
        given = [actor for pacer in self._pacers for actor in pacer.grants(version)]
        for actor in given:
            self._grants[actor] += 1
            self._newest[actor] = version
        return given

    def begin(self, actor: int) -> int | None:
        if not self._grants[actor]:
            return None
        self._grants[actor] -= 1
        return self._newest[actor]

    def put(self, actor: int, version: int) -> bool:
        self._inbox[actor].append(version)
        self._pacers[actor % self._learners].arrived(actor)
        return True

    def take(self, learner: int, version: int) -> int | None:
        pacer = self._pacers[learner]
        if (actor := pacer.next(version)) is None:
            return None
        pacer.trained(actor)
        return self._inbox[actor].popleft()

    def room(self) -> list[int]:
        return []


class Memory:
    """Slots that learners read and a board with the newest weights: ``rma``."""

    def __init__(self, run: PlannedRun, seed: int) -> None:
        self._run = run
        self._random = random.Random(seed)
        self._board = 0
        self._begun = self._trained = 0
        self._acting: dict[int, int] = {}
        self._waiting: deque[int] = deque()  # for the bound on the lag
        self._slots: list[deque[int]] = [deque() for _ in range(run.actors)]
        self._full: dict[int, int] = {}  # actors that hold a block without room, with its version
        self._found: list[int] = []
        self._ready: list[list[int]] = [[] for _ in range(run.learners)]
        self._places: dict[int, int] = {}  # of actors in these lists
        self._held: list[list[int]] = [[] for _ in range(run.learners)]

    def publish(self, version: int, trained: int) -> list[int]:
        self._board = version
        self._trained += trained
        return [self._waiting.popleft() for _ in range(self._allowed())]

    def begin(self, actor: int) -> int | None:
        if not may_begin(self._begun, self._trained, self._run.max_policy_lag):
            self._waiting.append(actor)
            return None
        self._begun += 1
        if self._run.max_policy_lag is not None:
            self._acting[actor] = self._board
        return self._board

    def put(self, actor: int, version: int) -> bool:
        if len(self._slots[actor]) >= self._run.slots:
            self._full[actor] = version
            return False
        self._acting.pop(actor, None)
        self._push(actor, version)
        return True

    def take(self, learner: int, version: int) -> int | None:
        bound = self._run.max_policy_lag
        if bound is None:
            return self._fetch(learner)
        held = self._held[learner]
        while (found := self._fetch(learner)) is not None:
            held.append(found)
        choice = oldest_in_time(held, list(self._acting.values()), version, bound)
        return None if choice is None else held.pop(choice)

    def room(self) -> list[int]:
        found, self._found = self._found, []
        return found

    def _allowed(self) -> int:
        """How many waiting actors may begin now."""
        count = 0
        while count < len(self._waiting) and may_begin(
            self._begun + count, self._trained, self._run.max_policy_lag
        ):
            count += 1
        return count

    def _push(self, actor: int, version: int) -> None:
        if not self._slots[actor]:
            ready = self._ready[actor % self._run.learners]
            self._places[actor] = len(ready)
            ready.append(actor)
        self._slots[actor].append(version)

    def _fetch(self, learner: int) -> int | None:
        """A block of an actor at random: one of this learner's, or of another's if these have none."""
        ready = self._ready[learner] or next((other for other in self._ready if other), [])
        if not ready:
            return None
        actor = self._random.choice(ready)
        slots = self._slots[actor]
        version = slots.popleft()
        if actor in self._full:
            slots.append(self._full.pop(actor))
            self._acting.pop(actor, None)
            self._found.append(actor)
        if not slots:
            last = ready.pop()
            if last != actor:
                ready[self._places[actor]] = last
                self._places[last] = self._places[actor]
        return version


class Lagging:
    """The events of such a run. ``blocks``: the seconds of one block after another."""

    def __init__(
        self, costs: Costs, run: PlannedRun, blocks: Iterator[float], seed: int = 0
    ) -> None:
        self._costs, self._run, self._blocks = costs, run, blocks
        self._between: Connection = Memory(run, seed) if run.workflow == "rma" else Messages(run)
        self._events: list[tuple[float, int, int]] = []  # when, in which order, whose
        self._random = random.Random(seed)
        self._count = 0  # events so far: those at the same time keep their order
        self._now = 0.0
        self._version = 0
        self._acting = [0] * run.actors  # the version each acts with
        self._idle_since: list[float | None] = [0.0] * run.actors
        self._hands: list[int | None] = [None] * run.learners  # versions of blocks taken
        self._training: list[int] = []  # versions of the blocks of the round under way
        self._free_since: float | None = 0.0
        self._seen = Seen()

    def run(self, before: int, blocks: int) -> Seen:
        """What is seen while ``blocks`` are trained, after the first ``before``."""
        self._begin(self._between.publish(0, 0) or range(self._run.actors))
        # As if they had been at it for long: otherwise all blocks would end at the same times.
        self._events = [(self._random.random() * end, n, actor) for end, n, actor in self._events]
        heapq.heapify(self._events)
        self._until(before)
        started = self._now
        self._seen = Seen()
        self._idle_since = [None if t is None else started for t in self._idle_since]
        self._until(blocks)
        seen = self._seen
        seen.seconds = self._now - started
        seen.idle += sum(self._now - since for since in self._idle_since if since is not None)
        return seen

    def _until(self, blocks: int) -> None:
        while self._seen.blocks < blocks:
            self._now, _, actor = heapq.heappop(self._events)
            if actor == _ROUND:
                self._end_round()
            elif self._between.put(actor, self._acting[actor]):
                self._go_on(actor)
                if self._free_since is not None:
                    self._try_round()
            else:
                self._idle_since[actor] = self._now

    def _push(self, time: float, actor: int) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, actor))

    def _begin(self, actors: range | list[int]) -> None:
        """Let those of ``actors`` that are idle begin a block, if they may."""
        for actor in actors:
            if self._idle_since[actor] is not None:
                self._go_on(actor)

    def _go_on(self, actor: int) -> None:
        """Begin the next block, or wait until that is possible."""
        version, since = self._between.begin(actor), self._idle_since[actor]
        if version is None:
            if since is None:
                self._idle_since[actor] = self._now
            return
        begins = self._now
        if since is not None:
            begins += 2 * self._costs.send_s + pause(self._now - since) / 2
            self._seen.idle += begins - since
            self._idle_since[actor] = None
        self._acting[actor] = version
        self._push(begins + next(self._blocks), actor)

    def _try_round(self) -> None:
        """Begin a round if any learner has a block."""
        self._look_ahead()
        self._training = [version for version in self._hands if version is not None]
        if not self._training:
            return
        self._hands = [None] * len(self._hands)
        run, count = self._run, len(self._training)
        took = round_seconds(self._costs, run.learners, count, count * run.steps)
        late = 0.0
        if self._free_since is not None:
            late = pause(self._now - self._free_since) / 2
            self._free_since = None
        self._seen.busy += took
        self._push(self._now + late + took, _ROUND)
        for version in self._training:
            lag = self._version - version
            self._seen.lags += lag
            self._seen.lag_max = max(self._seen.lag_max, lag)

    def _end_round(self) -> None:
        """New weights: publish them and begin the next round. As in a run, the next blocks are taken
        first, unless the lag is bounded."""
        self._seen.rounds += 1
        self._seen.blocks += len(self._training)
        self._version += 1
        if self._run.max_policy_lag is None:
            self._look_ahead()
        self._begin(self._between.publish(self._version, len(self._training)))
        self._try_round()
        if not self._training:
            self._free_since = self._now

    def _look_ahead(self) -> None:
        for learner, hand in enumerate(self._hands):
            if hand is None:
                self._hands[learner] = self._between.take(learner, self._version)
        for actor in self._between.room():
            self._go_on(actor)
