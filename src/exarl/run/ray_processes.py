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
from exarl.comm.team import MailTeam
from exarl.comm.wait import wait_for
from exarl.config import resolve, stored_source
from exarl.display.panel import Row
from exarl.errors import ExarlError
from exarl.records.checkpoint import fitting
from exarl.records.directory import RunDirectory, read_json
from exarl.run.components import lookup
from exarl.run.member import Member, RunResult
from exarl.training.actors import BLOCK, GOODBYE, LOST, READY, STATE, Word
from exarl.types import ACTOR_PHASES, Arrays, EnvSpec
from exarl.workflows.elastic import PATIENT_S, share_of

GOODBYE_S = 10.0
"""Seconds that actors have to close their environments."""
START_TAG = 22


@dataclass(frozen=True)
class Orders:
    """What every process of a run must know, plain enough for any of them to read."""

    configuration: str  # JSON
    layout: Layout
    run: str
    folder: str  # where the user works; files are named from there
    rollbacks: int = 0

    def member(self, rank: int) -> Member:
        """This process as the rank of that number."""
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        stored = stored_source(json.loads(self.configuration), "the run's configuration")
        member = Member(resolve(lookup, [stored]), self.layout, rank)
        member.run_directory = RunDirectory(Path(self.run))
        member.rollbacks = self.rollbacks
        member.begin()
        return member


class ActorHost:
    """An actor: acts when it is asked to. Lives in a process of its own."""

    def __init__(self, orders: Orders, actor: int, states: bytes) -> None:
        leave_gpu()
        self._stack = contextlib.ExitStack()
        member = self._member = orders.member(orders.layout.learners + actor)
        member.join_group(self._stack)
        member.build_agent(member.adapter.spec)
        stored = decode_arrays(np.frombuffer(states, np.uint8))
        if stored:
            with fitting(None):
                member.rollout.restore(stored)
        self._logging = False
        self._stopped = False
        self._idle_since = time.perf_counter()
        self._sent = self._dropped = 0

    def spec(self) -> str:
        """What its environments look like, as JSON."""
        return json.dumps(self._member.agent.spec.to_json())

    def roll(self, weights: bytes, version: int) -> bytes:
        """A block, behind its number; nothing when it is given up."""
        member = self._member
        if self._stopped:
            return b""
        if not self._logging:  # the run directory exists by now
            self._logging = True
            member.open_log(self._stack)
        idle = time.perf_counter() - self._idle_since
        member.agent.set_weights(np.frombuffer(weights, np.float32))
        block = member.rollout.collect(version, lambda: self._stopped)
        if block is None:
            self._dropped += 1
            return b""
        block.seconds[ACTOR_PHASES.index("wait")] = idle
        self._sent += 1
        self._idle_since = time.perf_counter()
        return self._sent.to_bytes(8, "little") + member.codec.encode(block).tobytes()

    def state(self) -> bytes:
        """How many blocks there were, finished and given up; the environments' state."""
        header = np.array([self._sent, self._dropped], np.int64).tobytes()
        return header + bytes(encode_arrays(self._member.rollout.state()))

    def stop(self) -> None:
        self._stopped = True

    def close(self) -> None:
        self._member.write_trace()
        self._stack.close()


class HiredCrew:
    """A learner's actors on the cluster."""

    def __init__(self, orders: Orders, actors: Needs, learners: Needs) -> None:
        self.words: deque[Word] = deque()
        self._orders = orders
        self._needs = actors
        self._reserved = learners.cpus * orders.layout.learners
        self._actors: dict[int, Remote] = {}
        self._ready: set[int] = set()

    def hire(self, actor: int, states: Arrays) -> None:
        if actor in self._actors:
            return  # at once when the run began
        stored = bytes(encode_arrays(states))
        remote = Remote(ActorHost, self._needs, self._orders, actor, stored, spread=True)
        self._actors[actor] = remote
        self._hear(actor, READY, remote.call("spec"))

    def put(self, weights: bytes) -> Any:
        return put(weights)

    def roll(self, actor: int, weights: Any, version: int) -> None:
        self._hear(actor, BLOCK, self._actors[actor].call("roll", weights, version))

    def ask_state(self, actor: int, last: bool) -> None:
        self._hear(actor, GOODBYE if last else STATE, self._actors[actor].call("state"))

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
        """What the environments look like, from the first actor that is ready."""
        lost: list[Word] = []
        since: float | None = time.monotonic()

        def word_or_stop() -> Word | None:
            nonlocal since
            if stopped():
                raise ExarlError("stopped before any actor was ready")
            if since is not None and time.monotonic() - since > PATIENT_S:
                since = None
                note(f"no actor has room yet; each needs {self._needs.cpus:g} CPUs of the cluster")
            return self.words.popleft() if self.words else None

        while len(lost) < len(self._actors):
            word = wait_for(word_or_stop)
            if word.kind == READY:
                self.words.extend([word, *lost])
                return EnvSpec.from_json(json.loads(word.payload))
            lost.append(word)
        raise ExarlError(f"no actor could be started: {lost[-1].error}")

    def close(self, patience: float) -> None:
        """Let everyone close their environments, for a while; then they are gone."""
        closing = [self._actors[actor].call("close") for actor in sorted(self._ready)]
        deadline = time.monotonic() + patience
        for future in closing:
            with contextlib.suppress(Exception):
                future.result(max(0.0, deadline - time.monotonic()))
        for remote in self._actors.values():
            remote.kill()
        self._ready.clear()

    def _hear(self, actor: int, kind: str, answer: Future[Any]) -> None:
        def heard(found: Any) -> None:
            if kind == READY:
                self._ready.add(actor)
            payload = found if isinstance(found, bytes) else str(found).encode()
            self.words.append(Word(kind, actor, payload))

        # Ray must not be called in here: it is Ray's own thread that runs these.
        then(answer, heard, lambda e: self.words.append(Word(LOST, actor, error=why(e))))


class Relay:
    """Progress for somebody in another process, who asks for it."""

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


class LearnerHost:
    """A learner with its crew. It runs in a thread, so that it can be spoken to."""

    def __init__(self, orders: Orders, rank: int, learners: Needs, actors: Needs) -> None:
        if not learners.gpus:
            leave_gpu()  # Ray shows it to those who asked for none as well
        self._orders = orders
        self._member = orders.member(rank)
        self._crew = HiredCrew(orders, actors, learners)
        self._relay = Relay()
        self._outcome: dict[str, Any] | None = None
        self._doors: list[Deliver] = []  # of all learners, once they are known
        self._mailbox = Mailbox(rank, orders.layout.learners, self._doors)

    def begin(self, learners: list[Any]) -> None:
        """Start; ``learners`` are the handles of all of them."""
        self._doors += [partial(_deliver, Remote.of(handle)) for handle in learners]
        threading.Thread(target=self._run, daemon=True).start()

    def deliver(self, source: int, tag: int, payload: bytes) -> None:
        self._mailbox.deliver(source, tag, payload)

    def stop(self, signum: int) -> None:
        self._member.signals.received = signum

    def news(self) -> dict[str, Any]:
        """What there is to show, and how it ended when it has."""
        outcome = self._outcome
        return {**self._relay.news(), "outcome": outcome}

    def _run(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                stack.callback(self._crew.close, GOODBYE_S)
                result = self._play(stack)
            self._outcome = {"reason": result.reason, "summary": result.summary} if result else {}
        except BaseException as error:  # noqa: BLE001 - it goes to whoever started this process
            expected = isinstance(error, ExarlError)
            text = str(error) if expected else "".join(traceback.format_exception(error))
            code = error.exit_code if isinstance(error, ExarlError) else 1
            self._outcome = {"error": text, "code": code}

    def _play(self, stack: contextlib.ExitStack) -> RunResult | None:
        member, layout = self._member, self._orders.layout
        member.crew = self._crew
        if layout.learners > 1:
            member.team = MailTeam(
                self._mailbox, getattr(member.workflow.config, "average_every", 1)
            )
        member.build_agent(self._spec())
        member.workflow.ready(member)
        resumed = member.start(stack, version(), partial(self._mailbox.share, tag=START_TAG))
        with member.clock.phase("start"):
            member.build_loop(stack, resumed, self._relay)
        member.workflow.run(member)
        self._crew.close(GOODBYE_S)
        return member.finish()

    def _spec(self) -> EnvSpec:
        """Of a new run from the actors, who start while JAX does; else from its manifest."""
        run = self._member.run_directory
        if run.exists():
            self._member.continues(run)
            return EnvSpec.from_json(read_json(run.manifest)["spec"])
        rank, learners = self._member.role.rank, self._orders.layout.learners
        config = self._member.workflow.config
        for i in range(share_of(config.n_actors or self._crew.room(), rank, learners)):
            self._crew.hire(rank + i * learners, {})
        signals = self._member.signals
        return self._crew.first_spec(lambda: signals.received is not None, self._relay.note)


def _deliver(learner: Remote, source: int, tag: int, payload: bytes) -> None:
    learner.call("deliver", source, tag, payload)
