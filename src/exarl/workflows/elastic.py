"""The elastic workflow: actors that may die and join, on a Ray cluster.

The learner asks each actor for blocks, a few at a time, and hands the newest weights along; both
travel through Ray's object store. An actor that is lost is replaced by one with a new number, and so
with random streams of its own: nothing is acted twice.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from exarl.comm.codec import decode_arrays
from exarl.comm.messages import SEND_STATE, STOP
from exarl.config import param
from exarl.errors import EnvironmentFailure
from exarl.training.actors import BLOCK, GOODBYE, LOST, READY, Word
from exarl.training.snapshot import Snapshot, StateBook, states_of
from exarl.types import FAILURES, Arrays, Block
from exarl.workflows import sync
from exarl.workflows.async_workflow import AsyncConfig
from exarl.workflows.base import ExaWorkflow, Experiment
from exarl.workflows.block_source import PacedSource
from exarl.workflows.lagging_loops import lead
from exarl.workflows.pacer import Pacer

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
"""How often the learner looks whether machines have joined."""
PATIENT_S = 15.0
"""Seconds until it says that actors wait for room."""
MADE = "actors_made"
"""Under this name a checkpoint keeps the first number that no actor of a learner has had."""


@dataclass(frozen=True)
class ElasticConfig(AsyncConfig):
    """Parameters of the workflow on Ray."""

    n_actors: int | None = param(
        None, "actors; null: as many as the cluster has room for, more when machines join", ge=1
    )
    address: str | None = param(
        None, "the Ray cluster: host:port, or auto; null: one on this machine, for the run only"
    )
    ignore_worker_failures: bool = param(
        True, "an actor that is lost is replaced, and counted; false: it ends the run"
    )
    actor_cpus: float = param(1.0, "CPUs that Ray sets aside for an actor", ge=0)
    actor_gpus: float = param(0.0, "GPUs for an actor, for simulations on them", ge=0)
    learner_cpus: float = param(1.0, "CPUs for a learner", ge=0)
    learner_gpus: float | None = param(
        None, "GPUs for a learner; null: one if the cluster has one for each", ge=0
    )
    learner_restarts: int = param(
        3,
        "times that learners lost with their machine are continued from the last checkpoint",
        ge=0,
    )
    store_share: float = param(
        0.3, "the part of Ray's object store that blocks under way may take", gt=0, le=1
    )


class Elastic(ExaWorkflow):
    """Learners and actors as Ray actors."""

    Config = ElasticConfig
    many_learners = True
    one_rank = True
    hosted = True
    lags = True

    def run(self, learner: Experiment) -> None:
        if learner.layout.alone:
            sync.lead(learner, sync.Alone(learner))  # --serial: one process takes turns
        else:
            source = HiredSource(learner, self.config)
            lead(learner, source, self.config.bounded)


class HiredSource(PacedSource):
    """A learner's end: hires actors, asks them for blocks, and replaces those that are lost."""

    def __init__(self, learner: Experiment, config: ElasticConfig) -> None:
        assert learner.crew is not None
        self._crew = learner.crew
        self._codec = learner.codec
        self._clock = learner.clock
        self._config = config
        self._width = learner.config.envs_per_actor
        self._most_failures = learner.config.max_env_failures
        self._note: Callable[[str], None] = learner.loop.note
        self._index, self._learners = learner.role.rank, learner.layout.learners
        block = learner.codec.max_bytes(learner.config.block_steps, self._width)
        pacer = Pacer(
            [],
            max_lag=config.max_policy_lag,
            ahead=config.blocks_ahead,
            order=config.order,
            most=max(1, int(config.store_share * self._crew.store() / block / self._learners)),
        )
        super().__init__([], pacer, StateBook(config.state_timeout))
        self._offer: tuple[Any, int] | None = (
            None  # where the newest weights are, and their version
        )
        self._hired: dict[int, float] = {}  # actors not yet ready, and since when
        self._futile: dict[int, int] = {}  # actors without a block yet: losses in a row before them
        self._failures: list[list[int]] = []  # lost actors' environments, for the next block
        self._orphans: list[Block] = []  # of actors lost while a snapshot is under way
        self._looked = time.monotonic()
        self._said_waiting = False
        self._next = self._index
        self._hire_first(learner.states)

    # -- hiring -----------------------------------------------------------------------------------

    def _hire_first(self, states: Arrays) -> None:
        """Those whose environments a checkpoint knows, then new ones."""
        made = max((int(a) for name, a in states.items() if name.startswith(MADE)), default=0)
        known = {int(name.partition("/")[0]) // self._width for name in states if "/" in name}
        mine = sorted(actor for actor in known if actor % self._learners == self._index)
        wanted = self._wanted()
        while self._next < made or self._next in known:
            self._next += self._learners
        for actor in mine[:wanted]:
            own = range(actor * self._width, (actor + 1) * self._width)
            self._hire(actor, states_of(states, own))
        self._hire_more(wanted)

    def _wanted(self) -> int:
        """How many actors this learner should have."""
        whole = self._config.n_actors or self._crew.room()
        return share_of(whole, self._index, self._learners)

    def _hire_more(self, wanted: int, futile: int = 0) -> None:
        while len(self._ranks) + len(self._hired) < wanted:
            self._hire(self._next, {}, futile)
            self._next += self._learners

    def _hire(self, actor: int, states: Arrays, futile: int = 0) -> None:
        self._hired[actor] = time.monotonic()
        self._futile[actor] = futile
        self._book.told(actor, states)
        self._crew.hire(actor, states)

    def _look_around(self) -> None:
        """Machines may have joined; actors may wait for room."""
        now = time.monotonic()
        if self._stopping or now - self._looked < LOOK_EVERY_S:
            return
        self._looked = now
        if self._config.n_actors is None:
            self._hire_more(self._wanted())
        waiting = [actor for actor, since in self._hired.items() if now - since > PATIENT_S]
        if waiting and not self._said_waiting:
            self._said_waiting = True
            self._note(
                f"{len(waiting)} of {len(waiting) + len(self._ranks)} actors wait for room in the"
                f" cluster (each needs {self._config.actor_cpus:g} CPUs)"
            )

    # -- what is heard of actors ------------------------------------------------------------------

    def _receive_blocks(self) -> None:
        joined = False
        while self._crew.words:
            word = self._crew.words.popleft()
            if word.kind == READY:
                joined |= self._join(word.actor)
            elif word.kind == LOST:
                self._lose(word)
            elif word.actor not in self._ranks:
                continue  # the last words of one that is lost
            elif word.kind == BLOCK:
                self._got(word)
            else:
                order = STOP if word.kind == GOODBYE else SEND_STATE
                state = np.frombuffer(word.payload, np.uint8)
                sent, dropped = state[:16].view(np.int64).tolist()
                self._answered(word.actor, order, sent, dropped, decode_arrays(state[16:]))
        self._look_around()
        if joined and self._offer is not None:
            self._grant()

    def _join(self, actor: int) -> bool:
        if self._hired.pop(actor, None) is None or self._stopping:
            return False
        self._ranks.append(actor)
        self._inbox[actor] = deque()
        self._received[actor] = self._dropped[actor] = self._asked[actor] = 0
        self._pacer.join(actor)
        if self._record is not None:
            self._record[actor] = []
            self._book.ask([actor])
            self._asked[actor] = 1
            self._crew.ask_state(actor, last=False)
        return True

    def _got(self, word: Word) -> None:
        if not word.payload:
            return  # given up, since all was to stop
        number = int.from_bytes(word.payload[:8], "little")
        assert number == self._received[word.actor] + 1, "a block came twice, or out of turn"
        block = self._codec.decode(np.frombuffer(word.payload, np.uint8)[8:])
        if self._failures:
            failures = np.concatenate([block.failures, np.array(self._failures, np.int64)])
            restarts = block.restarts + len(self._failures)
            block = dataclasses.replace(block, failures=failures, restarts=restarts)
            self._failures = []
        self._futile[word.actor] = 0
        self._arrived(word.actor, block)

    def _lose(self, word: Word) -> None:
        actor = word.actor
        if actor in self._ranks:
            self._ranks.remove(actor)
            self._dropped[actor] += self._pacer.leave(actor)
            self._sent.pop(actor, None)
            if self._record is not None:
                self._orphans += self._record.pop(actor)
        elif self._hired.pop(actor, None) is None:
            return  # known already
        self._book.forget(actor)
        self._crew.dismiss(actor)
        if self._stopping:
            return
        futile = self._futile.pop(actor) + 1
        log.warning("actor %d was lost: %s", actor, word.error)
        if not self._config.ignore_worker_failures:
            raise EnvironmentFailure(f"actor {actor} was lost: {word.error}", "crash")
        if futile > self._most_failures:
            raise EnvironmentFailure(
                f"{futile} actors in a row were lost before their first block; the last one:"
                f" {word.error}",
                "crash",
            )
        kinds = [int(kind == "crash") for kind in FAILURES]
        self._failures += [[actor * self._width + i, *kinds] for i in range(self._width)]
        self._note(f"actor {actor} was lost ({word.error}); actor {self._next} takes its place")
        self._hire_more(self._wanted(), futile)

    # -- what the learner asks --------------------------------------------------------------------

    def publish(self, weights: Callable[[], np.ndarray], version: int, trained: int) -> None:
        vector = weights()
        with self._clock.phase("send"):
            self._offer = self._crew.put(vector.tobytes()), version
            self._grant()

    def _grant(self) -> None:
        assert self._offer is not None
        weights, version = self._offer
        for actor in self._pacer.grants(version):
            self._crew.roll(actor, weights, version)

    def states(self) -> Snapshot | None:
        found = super().states()
        if found is None:
            return None
        orphans, self._orphans = self._orphans, []
        return dataclasses.replace(found, pending=found.pending + orphans)

    def _order_all(self, order: int) -> None:
        for actor in self._ranks:
            if order == STOP:
                self._crew.stop(actor)
            self._crew.ask_state(actor, last=order == STOP)

    def _receive_answers(self) -> None:
        self._receive_blocks()

    def _envs(self) -> Arrays:
        return {**super()._envs(), f"{MADE}_{self._index}": np.array(self._next)}


def share_of(actors: int, learner: int, learners: int) -> int:
    """How many of all ``actors`` a learner has; at least one."""
    return max(1, (actors + learners - 1 - learner) // learners)
