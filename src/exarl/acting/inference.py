"""Acting for environments on other ranks: observations come in, actions go out, blocks are built here.

A second thread of the learner does it, so that environments are answered while an update is computed.
Only this thread communicates with the actors; it exchanges orders, blocks and answers with the
learner's main thread through queues.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter, perf_counter_ns
from typing import Any, Protocol

import numpy as np

from exarl.acting.block_builder import ActingPolicy, BlockBuilder, act
from exarl.agents.base import ExaAgent
from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.comm.messages import (
    LAST,
    ActorState,
    Grant,
    Order,
    Payload,
    SendState,
    StepEnvs,
    StepKind,
    StopActing,
    Tag,
    encode,
)
from exarl.comm.steps import StepCodec, StepReport
from exarl.comm.transport import ANY
from exarl.comm.waiting import wait_for
from exarl.records.clock import Clock
from exarl.types import ACTOR_PHASES, FAILURES, Arrays, ArraySpec, Block, PyTree, Row

BRISK_S = 1e-3
"""How long both sides poll for a message before they sleep: a round trip is shorter than a sleep."""


class Post(Protocol):
    """What is needed of a ``comm.channel.Channel``."""

    def poll(self, source: int = ..., tag: int = ...) -> tuple[int, np.ndarray] | None: ...

    def post(self, payload: Payload, dest: int, tag: int) -> None: ...


@dataclass
class Station:
    """One actor as the learner sees it; ``assembly`` holds the places of its environments."""

    rank: int
    assembly: BlockBuilder
    incarnation: int | None = None  # of the process that has these places now
    grants: int = 0  # blocks it may begin
    awaited: int = 0  # reports to come
    wanted: int | None = None  # the newest snapshot for which it has still to be asked
    asked: int | None = None  # the snapshot for which it has been asked
    gone: bool = False
    since: float = 0.0  # when it began to wait for an action, or for a grant
    version: int = 0  # of the weights that began the block
    begun: int = 0  # blocks
    made: int = 0
    dropped: int = 0
    restarts: int = 0
    failures: dict[int, np.ndarray] = field(default_factory=dict)
    seconds: np.ndarray = field(default_factory=lambda: np.zeros(len(ACTOR_PHASES)))

    def count(self, report: StepReport) -> None:
        """Add up the failures and the time of a report."""
        self.restarts += report.restarts
        for env_id, *counts in report.failures.tolist():
            self.failures[env_id] = self.failures.get(env_id, 0) + np.array(counts, np.int64)
        env, wait, restart = report.seconds.tolist()
        # The actor waited for messages, for actions and for grants. The latter two are known here,
        # except for the first grant, for which it waited while the learner was still starting.
        send, idle = (wait, 0.0) if self.begun > 1 else (0.0, wait)
        self.seconds += [env, 0.0, send, idle, restart]

    def spent(self, phase: str) -> None:
        """Count the time since ``self.since`` as the actor's ``phase``."""
        if self.begun > 1:
            waited = perf_counter() - self.since
            self.seconds[ACTOR_PHASES.index(phase)] += waited
            self.seconds[ACTOR_PHASES.index("send")] -= waited

    def finish(self) -> Block:
        """The block, whose steps are complete."""
        rows = [[env_id, *counts.tolist()] for env_id, counts in sorted(self.failures.items())]
        failures = np.array(rows, np.int64).reshape(-1, 1 + len(FAILURES))
        seconds = self.seconds.clip(0)
        block = self.assembly.finish(self.version, self.restarts, failures, seconds)
        self.restarts, self.failures, self.made = 0, {}, self.made + 1
        self.seconds = np.zeros(len(ACTOR_PHASES))
        return block

    def state(self, report: StepReport) -> Arrays:
        """The state of its environments: the actor's part, in the report, and the learner's."""
        arrays = decode_arrays(report.tail) | self.assembly.state()
        for env_id, counts in self.failures.items():  # since the last block
            name = f"{env_id}/failures"
            arrays[name] = arrays.get(name, 0) + counts
        if self.restarts:
            name = f"{self.assembly.env_ids[0]}/restarts"
            arrays[name] = np.array(arrays.get(name, 0) + self.restarts)
        return arrays


@dataclass(frozen=True)
class Batching:
    """When to act: for ``rows`` environments at once, or ``wait`` seconds after the first report."""

    rows: int
    wait: float


class InferenceThread(threading.Thread):
    """Acts for all stations with the newest weights, and builds their blocks.

    ``orders`` takes (order, rank), of which the rank matters for a ``Grant`` only; ``offer`` sets the
    weights. ``blocks`` fills with (rank, block), and ``answers`` with (rank, answer, state). An
    exception is kept in ``error``. ``stored`` are the states of environments that a resumed run
    continues.
    """

    def __init__(
        self,
        channel: Post,
        agent: ExaAgent,
        stations: Sequence[Station],
        codec: StepCodec,
        batching: Batching,
        take_weights: Callable[[PyTree], None],
        clock: Clock,
        *,
        fixed_action: bool = False,
        stored: Arrays | None = None,
    ) -> None:
        super().__init__(name="inference", daemon=True)
        self.orders: deque[tuple[Order, int]] = deque()
        self.blocks: deque[tuple[int, Block]] = deque()
        self.answers: deque[tuple[int, ActorState, Arrays]] = deque()
        self.error: BaseException | None = None
        self._offered: tuple[int, PyTree] = (0, None)
        self._version = -1
        self._channel = channel
        self._agent = agent
        self._policy = ActingPolicy(agent, fixed_action)
        self._stations = {station.rank: station for station in stations}
        self._codec = codec
        self._batching = batching
        self._take_weights = take_weights
        self._clock = clock
        self._stored = stored or {}
        self._resting: list[Station] = []  # between two blocks
        self._ready: list[Station] = []  # with observations that need an action
        self._rows_ready = self._rows_away = 0  # environments: here, and being stepped
        self._stopping = False

    def offer(self, weights: PyTree, version: int) -> None:
        """Act with these as soon as possible."""
        self._offered = (version, weights)

    def run(self) -> None:
        try:
            while not all(station.gone for station in self._stations.values()):
                wait_for(self.work, BRISK_S)
        except BaseException as error:  # noqa: BLE001 - raised again by the learner's thread
            self.error = error

    def work(self) -> bool | None:
        """Do what can be done now; None if there was nothing to do."""
        busy = None
        while self.orders:
            self._obey(*self.orders.popleft())
            busy = True
        while (found := self._channel.poll(ANY, Tag.REPORT)) is not None:
            self._receive(self._stations[found[0]], self._codec.decode(found[1]))
            busy = True
        if self._stopping:
            return busy
        if busy and self._resting:
            self._resting = [station for station in self._resting if not self._starts(station)]
        if self._ready and self._due():
            self._answer()
            busy = True
        return busy

    # -- the learner's orders -------------------------------------------------------------------

    def _obey(self, order: Order, rank: int) -> None:
        if isinstance(order, Grant):
            self._stations[rank].grants += 1
        elif isinstance(order, SendState):
            for station in self._stations.values():
                station.wanted = order.snapshot
        else:
            self._stopping = True
            for station in self._stations.values():
                self._send(station, order)

    def _starts(self, station: Station) -> bool:
        """Send a resting station its next order, if there is one; whether there was."""
        if station.wanted is not None:
            station.asked, station.wanted = station.wanted, None
            self._send(station, SendState(station.asked))
            return True
        if not station.grants or self._offered[1] is None:
            return False
        station.grants -= 1
        self._refresh()
        station.version = self._version
        station.begun += 1
        station.spent("wait")
        station.assembly.begin()
        self._needs_action(station)
        return True

    # -- the actors' reports --------------------------------------------------------------------

    def _receive(self, station: Station, report: StepReport) -> None:
        if report.kind == StepKind.HELLO:
            self._greet(station, report)
        elif report.incarnation != station.incarnation:
            return  # from a process that another one has replaced
        station.count(report)
        if report.kind == StepKind.STEPPED:
            self._stepped(station, report)
            return
        station.assembly.seen[...] = report.row.observations
        station.assembly.forget([cut.slot for cut in report.cuts])
        if report.kind == StepKind.STATE and station.asked is not None:
            self._pass_on(station, station.asked, report)
            station.asked = None
        elif report.kind == StepKind.GOODBYE:
            station.gone = True
            station.dropped += station.assembly.open
            station.assembly.give_up()
            self._pass_on(station, LAST, report)
            return
        self._rest(station)

    def _pass_on(self, station: Station, snapshot: int, report: StepReport) -> None:
        answer = ActorState(snapshot, station.made, station.dropped)
        self.answers.append((station.rank, answer, station.state(report)))

    def _greet(self, station: Station, report: StepReport) -> None:
        """A process takes its places, or takes over those of another one."""
        assembly = station.assembly
        if station.incarnation is None:
            assembly.restore(self._stored, [cut.slot for cut in report.cuts])
        else:
            self._clear(station)
        station.incarnation = report.incarnation

    def _clear(self, station: Station) -> None:
        """Clear the places of a process that is gone; what it owed is asked of the next one."""
        assembly = station.assembly
        if station in self._ready:
            self._ready.remove(station)
            self._rows_ready -= assembly.width
        self._rows_away -= assembly.width if station.awaited else 0
        self._resting = [other for other in self._resting if other is not station]
        station.dropped += assembly.open
        station.grants += assembly.open
        if station.wanted is None:
            station.wanted = station.asked
        station.awaited, station.asked = 0, None
        assembly.give_up()
        assembly.forget(range(assembly.width))
        if self._stopping:
            self._send(station, StopActing())

    def _stepped(self, station: Station, report: StepReport) -> None:
        assembly = station.assembly
        if report.slot < 0:
            for target, source in zip(assembly.row, report.row, strict=True):
                target[...] = source
        else:
            _copy_slot(report.row, assembly.row, report.slot)
        if len(report.tail):
            assembly.took(decode_taken(report.tail))
        assembly.stepped(report.ends, report.cuts)
        station.awaited -= 1
        if self._stopping:
            return
        for cut in report.cuts:
            assembly.again(self._policy, cut)
            self._act(station, cut.slot)
        if station.awaited:
            return
        self._rows_away -= assembly.width
        assembly.advance()
        if assembly.complete:
            self.blocks.append((station.rank, self._agent.prepare(station.finish())))
            self._rest(station)
        else:
            self._needs_action(station)

    def _rest(self, station: Station) -> None:
        station.since = perf_counter()
        self._resting.append(station)

    def _needs_action(self, station: Station) -> None:
        station.since = perf_counter()
        self._ready.append(station)
        self._rows_ready += station.assembly.width

    # -- acting ---------------------------------------------------------------------------------

    def _due(self) -> bool:
        """Whether the batch is large enough, has waited long enough, or will not grow."""
        if self._rows_ready >= self._batching.rows or not self._rows_away:
            return True
        return perf_counter() - self._ready[0].since >= self._batching.wait

    def _answer(self) -> None:
        self._refresh()
        width = self._ready[0].assembly.width
        count = max(1, self._batching.rows // width)
        batch, self._ready = self._ready[:count], self._ready[count:]
        self._rows_ready -= width * len(batch)
        started = perf_counter_ns()
        act(self._policy, [station.assembly for station in batch])
        self._clock.tracer.add("inference", started, perf_counter_ns(), beside=True)
        self._clock.moved()
        for station in batch:
            self._act(station, -1)
            self._rows_away += width
            station.spent("inference")

    def _act(self, station: Station, slot: int) -> None:
        station.awaited += 1
        self._send(station, StepEnvs(slot), station.assembly.actions)

    def _send(self, station: Station, order: Order, actions: Payload = b"") -> None:
        self._channel.post(encode(order, actions), station.rank, Tag.ORDER)

    def _refresh(self) -> None:
        version, weights = self._offered
        if version != self._version:
            self._take_weights(weights)
            self._version = version


def encode_taken(taken: Sequence[tuple[int, Any]], action: ArraySpec) -> bytes:
    """``EnvBatch.taken`` for the tail of a report."""
    slots, actions = zip(*taken, strict=True)
    return encode_arrays({"slots": np.array(slots), "taken": np.array(actions, action.dtype)})


def decode_taken(tail: np.ndarray) -> list[tuple[int, Any]]:
    """The inverse of ``encode_taken``."""
    arrays = decode_arrays(tail)
    return list(zip(arrays["slots"].tolist(), arrays["taken"], strict=True))


def _copy_slot(source: Row, target: Row, slot: int) -> None:
    for theirs, ours in zip(source, target, strict=True):
        if len(theirs):  # agents may not change
            ours[slot] = theirs[slot]
