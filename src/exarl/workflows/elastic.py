"""The elastic workflow: actors that may die and join, on a Ray cluster or over a socket.

The learner asks each actor for blocks, a few at a time, and passes the newest weights, through Ray's
object store or its connection to the actor. A lost actor is replaced by one with a new number, and so
with random streams of its own: nothing is acted twice.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from exarl.comm.codec import decode_arrays
from exarl.comm.exchange import TIMEOUT_S, parse_address
from exarl.comm.messages import LAST, ActorState, Order, SendState, decode
from exarl.comm.pacer import Pacer
from exarl.config import LearnerConfig, param
from exarl.errors import ConfigError, EnvironmentFailure
from exarl.training.actors import BLOCK, LOST, NOTE, READY, ActorEvent, Tally
from exarl.training.process import Learner, RunOutcome
from exarl.training.snapshot import Snapshot, SnapshotTracker, states_of
from exarl.types import FAILURES, Arrays, Block
from exarl.workflows import sync
from exarl.workflows.async_workflow import AsyncConfig
from exarl.workflows.base import ExaWorkflow
from exarl.workflows.block_source import PacedSource
from exarl.workflows.lagging_loops import learn

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
"""Seconds between two looks whether machines have joined."""
PATIENT_S = 15.0
"""Seconds until the learner reports that actors wait for room."""
LOOPBACK = "127.0.0.1"
"""Where the learner listens if only a port is given."""
MADE = "actors_made"
"""Under this name a checkpoint keeps the first number that no actor of a learner has had."""


@dataclass(frozen=True)
class ElasticConfig(AsyncConfig):
    """Parameters of the workflow, most of them on Ray."""

    n_actors: int | None = param(
        None, "actors; null: as many as the cluster has room for, more when machines join", ge=1
    )
    listen: str | None = param(
        None,
        "without Ray: [HOST:]PORT where simulations join with 'exarl actor'; this machine only, if"
        " no HOST is given; port 0: a free one",
    )
    actor_timeout: float = param(
        TIMEOUT_S, "with listen: seconds without a sign of life after which an actor is lost", ge=20
    )
    address: str | None = param(
        None, "the Ray cluster: host:port, or auto; null: one on this machine, for the run only"
    )
    ignore_worker_failures: bool = param(
        True, "an actor that is lost is replaced, and counted; false: it ends the run"
    )
    actor_cpus: float = param(1.0, "CPUs that Ray reserves for each actor", ge=0)
    actor_gpus: float = param(0.0, "GPUs for each actor, for simulations on them", ge=0)
    learner_cpus: float = param(1.0, "CPUs for each learner", ge=0)
    learner_gpus: float | None = param(
        None, "GPUs for each learner; null: one if the cluster has one for each", ge=0
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
    """Learners and actors as Ray actors, or a learner that actors join."""

    Config = ElasticConfig
    many_learners = True
    one_rank = True
    hosted = True
    lags = True

    def __init__(self, config: ElasticConfig) -> None:
        super().__init__(config)
        self.listens = config.listen is not None

    def check(self, run: LearnerConfig, ranks: int) -> None:
        super().check(run, ranks)
        if self.config.listen is None:
            return
        parse_address(self.config.listen, "listen", LOOPBACK)
        if run.learner_procs > 1:
            raise ConfigError("with listen there is one learner: learner_procs must be 1")
        if self.config.address is not None:
            raise ConfigError("listen is for actors without Ray, address for Ray: give one of them")

    def learn(self, learner: Learner) -> RunOutcome:
        if learner.actor is not None:
            return sync.learn(learner, sync.actors_of(learner))  # --serial: one process takes turns
        source, together = HiredSource(learner, self.config), self.config.blocks_together
        return learn(learner, source, self.config.bounded, together)


class HiredSource(PacedSource):
    """A learner's end: starts actors, asks them for blocks, and replaces those that are lost."""

    def __init__(self, learner: Learner, config: ElasticConfig) -> None:
        assert learner.actor_pool is not None
        self._pool = learner.actor_pool
        self._codec = learner.codec
        self._clock = learner.clock
        self._config = config
        self._volunteers = config.listen is not None  # actors come by themselves, or none does
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
            most=max(1, int(config.store_share * self._pool.store() / block / self._learners)),
        )
        super().__init__([], pacer, SnapshotTracker(config.state_timeout))
        # A reference to the newest weights, and their version.
        self._offer: tuple[object, int] | None = None
        self._hired: dict[int, float] = {}  # actors not yet ready, and since when
        self._futile: dict[int, int] = {}  # by actor without a block yet: losses in a row before it
        self._failures: list[list[int]] = []  # of lost actors' environments, for the next block
        self._early: dict[
            int, dict[int, Block]
        ] = {}  # by actor and number: others come before them
        self._looked = time.monotonic()
        self._said_waiting = False
        self._next = self._index
        self._hire_first(learner.states)

    # -- hiring -----------------------------------------------------------------------------------

    def _hire_first(self, states: Arrays) -> None:
        """Start the actors whose environments are in a checkpoint, then new ones."""
        made = max((int(a) for name, a in states.items() if name.startswith(MADE)), default=0)
        known = {int(name.partition("/")[0]) // self._width for name in states if "/" in name}
        mine = sorted(actor for actor in known if actor % self._learners == self._index)
        wanted = self._wanted()
        while self._next < made or self._next in known:
            self._next += self._learners
        # Volunteers take the places of a resumed run one after another.
        for actor in mine[: self._config.n_actors if self._volunteers else wanted]:
            own = range(actor * self._width, (actor + 1) * self._width)
            self._hire(actor, states_of(states, own))
        self._hire_more(wanted)

    def _wanted(self) -> int:
        """How many actors this learner should have."""
        whole = self._config.n_actors or self._pool.room()
        return share_of(whole, self._index, self._learners)

    def _hire_more(self, wanted: int, futile: int = 0) -> None:
        while len(self._ranks) + len(self._hired) < wanted:
            self._hire(self._next, {}, futile)
            self._next += self._learners

    def _hire(self, actor: int, states: Arrays, futile: int = 0) -> None:
        self._hired[actor] = time.monotonic()
        self._futile[actor] = futile
        self._tracker.start(actor, states)
        self._pool.hire(actor, states)

    def _look_around(self) -> None:
        """Start more actors if machines have joined; report actors that wait for room."""
        now = time.monotonic()
        if self._stopping or now - self._looked < LOOK_EVERY_S:
            return
        self._looked = now
        if self._config.n_actors is None:
            self._hire_more(self._wanted())
        waiting = [actor for actor, since in self._hired.items() if now - since > PATIENT_S]
        if not waiting or self._said_waiting or (self._volunteers and self._ranks):
            return
        self._said_waiting = True
        if self._volunteers:
            self._note("no simulation has joined yet; waiting")
        else:
            self._note(
                f"{len(waiting)} of {len(waiting) + len(self._ranks)} actors wait for room in the"
                f" cluster (each needs {self._config.actor_cpus:g} CPUs)"
            )

    # -- the actors' events -----------------------------------------------------------------------

    def _receive_blocks(self) -> None:
        joined = False
        while self._pool.events:
            event = self._pool.events.popleft()
            if event.kind == NOTE:
                self._note(event.error)
            elif event.kind == READY:
                joined |= self._join(event.actor)
            elif event.kind == LOST:
                self._lose(event)
            elif event.actor in self._ranks:  # else it is from an actor that is lost
                try:
                    self._got(event) if event.kind == BLOCK else self._got_state(event)
                except ValueError as error:
                    self._lose(ActorEvent(LOST, event.actor, error=f"it sent nonsense: {error}"))
        self._look_around()
        if joined and self._offer is not None:
            self._grant()

    def _join(self, actor: int) -> bool:
        if self._hired.pop(actor, None) is None or self._stopping:
            return False
        self._ranks.append(actor)
        self._inbox[actor] = deque()
        self._received[actor] = self._dropped[actor] = 0
        self._early[actor] = {}
        self._pacer.join(actor)
        if self._tracker.under_way:
            self._tracker.ask(actor)
            self._pool.ask_state(actor, self._tracker.number)
        return True

    def _got(self, event: ActorEvent) -> None:
        if not event.payload:
            return  # abandoned, since the run stops
        head, block = self._codec.decode_numbered(event.payload)
        # Ray does not promise to deliver results in the order of the calls: a block that it inlines
        # in its reply can overtake a larger one that has to be fetched from the object store.
        early = self._early[event.actor]
        early[head.number] = block
        while (following := early.pop(self._received[event.actor] + 1, None)) is not None:
            self._accept(event.actor, following)

    def _got_state(self, event: ActorEvent) -> None:
        answer, states = decode(event.payload, ActorState)
        self._answered(event.actor, answer, decode_arrays(states))

    def _accept(self, actor: int, block: Block) -> None:
        if self._failures:
            failures = np.concatenate([block.failures, np.array(self._failures, np.int64)])
            restarts = block.restarts + len(self._failures)
            block = dataclasses.replace(block, failures=failures, restarts=restarts)
            self._failures = []
        self._futile[actor] = 0
        self._arrived(actor, block)

    def _lose(self, event: ActorEvent) -> None:
        actor = event.actor
        if actor in self._ranks:
            self._ranks.remove(actor)
            self._dropped[actor] += self._pacer.remove(actor)
            del self._early[actor]
        elif self._hired.pop(actor, None) is None:
            return  # known already
        self._tracker.remove(actor)
        self._pool.dismiss(actor)
        if self._stopping:
            return
        futile = self._futile.pop(actor) + 1
        log.info("actor %d was lost: %s", actor, event.error)
        if not self._config.ignore_worker_failures:
            raise EnvironmentFailure(f"actor {actor} was lost: {event.error}", "crash")
        if futile > self._most_failures and not self._volunteers:
            raise EnvironmentFailure(
                f"{futile} actors in a row were lost before their first block; the last one:"
                f" {event.error}",
                "crash",
            )
        kinds = [int(kind == "crash") for kind in FAILURES]
        self._failures += [[actor * self._width + i, *kinds] for i in range(self._width)]
        if self._volunteers:
            left = f"{len(self._ranks)} left" if self._ranks else "none is left, waiting for others"
            self._note(f"actor {actor} was lost ({event.error}); {left}")
        else:
            self._note(
                f"actor {actor} was lost ({event.error}); actor {self._next} takes its place"
            )
        self._hire_more(self._wanted(), futile)

    # -- the learner's orders ---------------------------------------------------------------------

    def publish(self, weights: Callable[[], np.ndarray], version: int, trained: int) -> None:
        vector = weights()
        with self._clock.phase("send"):
            self._offer = self._pool.put(vector.tobytes()), version
            self._grant()

    def _grant(self) -> None:
        assert self._offer is not None
        weights, version = self._offer
        for actor in self._pacer.grants(version):
            self._pool.roll(actor, weights, version)

    def states(self) -> Snapshot | None:
        found = super().states()
        return None if found is None else self._with_next_number(found)

    def stop(self, patience: float | None) -> tuple[Snapshot, Tally]:
        last, tally = super().stop(patience)
        return self._with_next_number(last), tally

    def _order_all(self, order: Order) -> None:
        snapshot = order.snapshot if isinstance(order, SendState) else LAST
        for actor in self._ranks:
            if snapshot == LAST:
                self._pool.stop(actor)
            self._pool.ask_state(actor, snapshot)

    def _receive_answers(self) -> None:
        self._receive_blocks()

    def _with_next_number(self, found: Snapshot) -> Snapshot:
        made = {f"{MADE}_{self._index}": np.array(self._next)}
        return dataclasses.replace(found, envs={**found.envs, **made})


def share_of(actors: int, learner: int, learners: int) -> int:
    """How many of all ``actors`` a learner has; at least one."""
    return max(1, (actors + learners - 1 - learner) // learners)
