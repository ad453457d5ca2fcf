"""Learners and actors as objects on a Ray cluster."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from exarl.comm.cluster import (
    Needs,
    Remote,
    put,
    resources,
    then,
    version,
    why,
)
from exarl.comm.codec import decode_arrays, encode_arrays
from exarl.comm.devices import leave_gpu
from exarl.comm.layout import Layout
from exarl.comm.mailbox import Deliver, Mailbox
from exarl.comm.messages import Tag
from exarl.comm.team import MailTeam
from exarl.comm.waiting import wait_for
from exarl.errors import ExarlError
from exarl.records.directory import RunDirectory, read_json
from exarl.records.stops import Row
from exarl.run.hired_actor import HiredActor, stored_task
from exarl.run.play import play, write_trace
from exarl.run.task import Peers, ProcessTask, T
from exarl.training.actors import BLOCK, LOST, READY, STATE, ActorEvent
from exarl.types import Arrays, EnvSpec
from exarl.workflows.elastic import PATIENT_S, share_of

GOODBYE_S = 10.0
"""Seconds that actors have to close their environments."""


@dataclass(frozen=True)
class Orders:
    """What every process of a run must know, in plain values that any of them can read."""

    configuration: str  # JSON
    layout: Layout
    run: str
    folder: str  # the user's working directory; file names are relative to it
    rollbacks: int = 0

    def task(self, rank: int) -> ProcessTask:
        """The task of this process as the rank of that number."""
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        run = RunDirectory(Path(self.run))
        return stored_task(self.configuration, self.layout, rank, run, self.rollbacks)


class ActorHost(HiredActor):
    """An actor in a process of its own, whose methods the learner calls."""

    def __init__(self, orders: Orders, actor: int, states: bytes) -> None:
        leave_gpu()
        self._open = contextlib.ExitStack()
        task = orders.task(orders.layout.learners + actor)
        stored = decode_arrays(np.frombuffer(states, np.uint8))
        super().__init__(task, Peers(), self._open, stored)

    def spec(self) -> str:
        """The spec of its environments as JSON."""
        return json.dumps(self.env_spec.to_json())

    def close(self) -> None:
        write_trace(self.task)
        self._open.close()


class RayActorPool:
    """A learner's actors on the cluster."""

    def __init__(self, orders: Orders, actors: Needs, learners: Needs) -> None:
        self.events: deque[ActorEvent] = deque()
        self._orders = orders
        self._needs = actors
        self._reserved = learners.cpus * orders.layout.learners
        self._actors: dict[int, Remote] = {}
        self._ready: set[int] = set()

    def hire(self, actor: int, states: Arrays) -> None:
        if actor in self._actors:
            return  # it was started with the run
        stored = bytes(encode_arrays(states))
        remote = Remote(ActorHost, self._needs, self._orders, actor, stored, spread=True)
        self._actors[actor] = remote
        self._listen(actor, READY, remote.call("spec"))

    def put(self, weights: bytes) -> object:
        return put(weights)

    def roll(self, actor: int, weights: object, version: int) -> None:
        self._listen(actor, BLOCK, self._actors[actor].call("roll", weights, version))

    def ask_state(self, actor: int, snapshot: int) -> None:
        self._listen(actor, STATE, self._actors[actor].call("state", snapshot))

    def stop(self, actor: int) -> None:
        self._actors[actor].call("stop", now=True)

    def dismiss(self, actor: int) -> None:
        self._ready.discard(actor)
        self._actors[actor].kill()

    def store(self) -> int:
        return int(resources().get("object_store_memory", 1e9))

    def room(self) -> int:
        free = resources().get("CPU", 1.0) - self._reserved
        return max(1, int(free / max(self._needs.cpus, 1e-9)) if self._needs.cpus else 1)

    def first_spec(self, stopped: Callable[[], bool], note: Callable[[str], None]) -> EnvSpec:
        """The spec of the environments, from the first actor that is ready.

        ExarlError when none could be started, or the run is ``stopped`` first.
        """
        lost: list[ActorEvent] = []
        since: float | None = time.monotonic()

        def event_or_stop() -> ActorEvent | None:
            nonlocal since
            if stopped():
                raise ExarlError("stopped before any actor was ready")
            if since is not None and time.monotonic() - since > PATIENT_S:
                since = None
                note(f"no actor has room yet; each needs {self._needs.cpus:g} CPUs of the cluster")
            return self.events.popleft() if self.events else None

        while len(lost) < len(self._actors):
            event = wait_for(event_or_stop)
            if event.kind == READY:
                self.events.extend([event, *lost])
                return EnvSpec.from_json(json.loads(event.payload))
            lost.append(event)
        raise ExarlError(f"no actor could be started: {lost[-1].error}")

    def close(self, patience: float) -> None:
        """Let the actors close their environments within ``patience`` seconds; then kill them."""
        closing = [self._actors[actor].call("close") for actor in sorted(self._ready)]
        deadline = time.monotonic() + patience
        for future in closing:
            with contextlib.suppress(Exception):
                future.result(max(0.0, deadline - time.monotonic()))
        for remote in self._actors.values():
            remote.kill()
        self._ready.clear()

    def _listen(self, actor: int, kind: str, answer: Future[Any]) -> None:
        def answered(result: Any) -> None:
            if kind == READY:
                self._ready.add(actor)
            payload = result if isinstance(result, bytes) else str(result).encode()
            self.events.append(ActorEvent(kind, actor, payload))

        # These run in a thread of Ray's own, which must not call Ray.
        then(answer, answered, lambda e: self.events.append(ActorEvent(LOST, actor, error=why(e))))


class Relay:
    """Progress that the supervisor, in another process, asks for."""

    def __init__(self) -> None:
        self._notes: deque[str] = deque()
        self._row: Row | None = None
        self._busy = ""

    def update(self, row: Row) -> None:
        self._row = row

    def note(self, text: str) -> None:
        self._notes.append(text)

    def busy(self, text: str) -> None:
        self._busy = text

    def close(self) -> None:
        pass

    def news(self) -> dict[str, Any]:
        notes = [self._notes.popleft() for _ in range(len(self._notes))]
        return {"notes": notes, "row": self._row, "busy": self._busy}


class RayPeers(Peers):
    """The other learners of a run on a cluster, by mail, and the actors that this one starts."""

    def __init__(
        self, task: ProcessTask, actors: RayActorPool, mailbox: Mailbox, relay: Relay
    ) -> None:
        self._task, self._actors, self._mailbox, self._relay = task, actors, mailbox, relay
        self.library = version()
        self.actor_pool = actors
        if task.layout.learners > 1:
            self.team = MailTeam(mailbox, getattr(task.workflow.config, "average_every", 1))

    def share(self, data: T) -> T:
        shared: T = self._mailbox.share(data, Tag.START)
        return shared

    def share_spec(self, own: EnvSpec | None) -> EnvSpec:
        """Of a new run from the first actors, which start while JAX does; else from its manifest."""
        run, signals = self._task.run, self._task.signals
        if run.exists():
            return EnvSpec.from_json(read_json(run.manifest)["spec"])
        rank, learners = self._task.role.rank, self._task.layout.learners
        wanted = self._task.workflow.config.n_actors or self._actors.room()
        for i in range(share_of(wanted, rank, learners)):
            self._actors.hire(rank + i * learners, {})
        return self._actors.first_spec(lambda: signals.received is not None, self._relay.note)

    def dismiss(self) -> None:
        self._actors.close(GOODBYE_S)


class LearnerHost:
    """A learner with its actors. It runs in a thread, so that it can be called meanwhile."""

    def __init__(self, orders: Orders, rank: int, learners: Needs, actors: Needs) -> None:
        if not learners.gpus:
            leave_gpu()  # Ray shows it also to those that asked for none
        self._task = orders.task(rank)
        self._relay = Relay()
        self._outcome: dict[str, Any] | None = None
        self._doors: list[Deliver] = []  # of all learners, once they are known
        self._mailbox = Mailbox(rank, orders.layout.learners, self._doors)
        pool = RayActorPool(orders, actors, learners)
        self._peers = RayPeers(self._task, pool, self._mailbox, self._relay)

    def begin(self, learners: list[Any]) -> None:
        """Start; ``learners`` are the handles of all of them."""
        self._doors += [partial(_deliver, Remote.of(handle)) for handle in learners]
        threading.Thread(target=self._run, daemon=True).start()

    def deliver(self, source: int, tag: int, payload: bytes) -> None:
        """Take a message of another learner."""
        self._mailbox.deliver(source, tag, payload)

    def stop(self, signum: int) -> None:
        """Stop as if this process had received the signal."""
        self._task.signals.stop(signum)

    def news(self) -> dict[str, Any]:
        """What there is to show, and the outcome once the learner has ended."""
        outcome = self._outcome
        return {**self._relay.news(), "outcome": outcome}

    def _run(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                stack.callback(self._peers.dismiss)
                result = play(self._task, self._peers, stack, lambda: self._relay).result
            self._outcome = {"reason": result.reason, "summary": result.summary} if result else {}
        except BaseException as error:  # noqa: BLE001 - the supervisor raises it
            expected = isinstance(error, ExarlError)
            text = str(error) if expected else "".join(traceback.format_exception(error))
            code = error.exit_code if isinstance(error, ExarlError) else 1
            self._outcome = {"error": text, "code": code}


def _deliver(learner: Remote, source: int, tag: int, payload: bytes) -> None:
    learner.call("deliver", source, tag, payload)
