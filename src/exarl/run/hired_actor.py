"""An actor that acts when the learner asks it to, whatever brings the learner's calls."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable

import numpy as np

from exarl.comm.codec import encode_arrays
from exarl.comm.layout import Layout
from exarl.comm.messages import ActorState, encode
from exarl.config import resolve, stored_source
from exarl.records.directory import RunDirectory
from exarl.records.signals import StopSignals
from exarl.run.build import build_workflow
from exarl.run.configure import lookup
from exarl.run.process import build_actor, build_environments, build_process
from exarl.run.start import open_log
from exarl.run.task import Peers, ProcessTask, start_clock
from exarl.types import Arrays, EnvSpec, timed


def stored_task(
    configuration: str, layout: Layout, rank: int, run: RunDirectory, rollbacks: int = 0
) -> ProcessTask:
    """The task of this process as the rank of that number, in a run of this configuration (JSON)."""
    stored = stored_source(json.loads(configuration), "the run's configuration")
    resolved, role = resolve(lookup, [stored]), layout.role(rank)
    return ProcessTask(
        resolved,
        layout,
        role,
        build_workflow(resolved),
        run,
        StopSignals(),
        start_clock(resolved.learner, role),
        continues=run.exists(),
        rollbacks=rollbacks,
    )


class HiredActor:
    """An actor with its environments, which ``stack`` closes. ``given_up`` says at every step whether
    to abandon the block in hand."""

    def __init__(
        self,
        task: ProcessTask,
        peers: Peers,
        stack: contextlib.ExitStack,
        states: Arrays,
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self.task = task
        self._stack, self._given_up = stack, given_up
        environments = build_environments(task, peers, stack)
        process = build_process(task, peers, environments)
        self._actor = build_actor(process, environments, states, fresh=not states)
        self._logging = False
        self._stopped = False
        self._idle_since = time.perf_counter()
        self._sent = self._dropped = 0

    @property
    def env_spec(self) -> EnvSpec:
        """What its environments look like."""
        return self._actor.agent.spec

    def roll(self, weights: bytes | np.ndarray, version: int) -> bytes:
        """A block with its number, as bytes; nothing if it is abandoned."""
        actor = self._actor
        if self._stopped or self._given_up():
            return b""
        if not self._logging:  # the run directory exists by now
            self._logging = True
            open_log(self.task, self._stack)
        idle = time.perf_counter() - self._idle_since
        actor.agent.set_weights(np.frombuffer(weights, np.float32))
        block = actor.rollout.collect(version, lambda: self._stopped or self._given_up())
        if block is None:
            self._dropped += 1
            return b""
        self._sent += 1
        self._idle_since = time.perf_counter()
        return actor.codec.encode(timed(block, {"wait": idle}), number=self._sent).tobytes()

    def state(self, snapshot: int) -> bytes:
        """An ``ActorState`` for this snapshot, with the environments' states."""
        answer = ActorState(snapshot, self._sent, self._dropped)
        return encode(answer, encode_arrays(self._actor.rollout.state()))

    def stop(self) -> None:
        """Give up the block in hand at the next step, and begin no other."""
        self._stopped = True
