"""A learner whose actors join it over a socket: ``exarl train --workflow elastic --listen PORT``."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from functools import partial
from typing import Any

from exarl.comm.exchange import Address, parse_address
from exarl.comm.join_key import VARIABLE, open_key
from exarl.comm.layout import Layout
from exarl.comm.messages import Leave, Welcome
from exarl.config import Configuration
from exarl.display.progress import Progress
from exarl.errors import Stopped
from exarl.records.directory import RunDirectory, read_json
from exarl.records.ending import describe
from exarl.records.lock import RunLock
from exarl.records.signals import StopSignals
from exarl.run.build import build_workflow
from exarl.run.joined_pool import JoinedActorPool
from exarl.run.play import RunResult, play
from exarl.run.process import open_progress, terminal_progress
from exarl.run.task import Peers, ProcessTask, start_clock
from exarl.training.divergence import rolls_back
from exarl.types import EnvSpec
from exarl.workflows.elastic import LOOPBACK

ANY_HOST = ("0.0.0.0", "::")


def listen(
    configuration: Configuration, layout: Layout, run: RunDirectory, show: bool
) -> RunResult:
    """Learn in this process from simulations that join it, until the run ends."""
    config: Any = build_workflow(configuration).config
    address, rollbacks = parse_address(config.listen, "listen", LOOPBACK), 0
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(RunLock(run))
        signals = stack.enter_context(StopSignals())
        stack.callback(_forget_key, run)
        key, in_file = open_key(os.environ, run.join_key)
        welcome = partial(_welcome, configuration, layout, lock)
        ranks, timeout = layout.process_per_env, config.actor_timeout
        while True:
            pool = JoinedActorPool(key, partial(welcome, rollbacks), ranks, timeout)
            leave = Leave("the learner ended", 1)
            try:
                address = pool.listen(address)  # from now on with its port
                with contextlib.ExitStack() as once:
                    progress = open_progress(
                        partial(terminal_progress, configuration.learner) if show else None, once
                    )
                    progress.note(invitation(address, ranks, run if in_file else None))
                    task = _task(configuration, layout, lock, signals, rollbacks)
                    peers = JoinedPeers(task, pool, progress)
                    result = play(task, peers, once, partial(_same, progress)).result
                assert result is not None
                again = rolls_back(configuration.learner, result.summary, rollbacks)
                again &= signals.received is None
                leave = Leave(f"the run ended ({result.reason})", again=again)
            except BaseException as error:
                leave = Leave(f"the run failed: {describe(error)}", 1)
                raise
            finally:
                pool.close(leave)
            if not again:
                return result
            rollbacks += 1


def invitation(address: Address, ranks: int, run: RunDirectory | None) -> str:
    """How a simulation joins; ``run`` if the key is in its directory."""
    host = socket.gethostname() if address.host in ANY_HOST else address.host
    command = f"exarl actor --join {Address(host, address.port)}"
    command = f"mpiexec -n {ranks} {command}" if ranks > 1 else command
    key = f" --key-file {run.join_key.absolute()}" if run is not None else ""
    return f"simulations join with: {command}{key or f' (with the same {VARIABLE})'}"


class JoinedPeers(Peers):
    """The simulations that join a learner."""

    def __init__(self, task: ProcessTask, pool: JoinedActorPool, progress: Progress) -> None:
        self._task, self._progress = task, progress
        self._pool = self.actor_pool = pool

    def share_spec(self, own: EnvSpec | None) -> EnvSpec:
        """Of a new run from the first simulation that joins; else from its manifest."""
        run, signals = self._task.run, self._task.signals
        if run.exists():
            self._pool.spec = EnvSpec.from_json(read_json(run.manifest)["spec"])
            return self._pool.spec

        def stopped() -> None:
            if signals.received is not None:
                raise Stopped(signals.received)

        self._progress.busy("waiting for the first simulation to join")
        spec = self._pool.first_spec(self._progress.note, stopped)
        self._progress.busy("")
        return spec


def _welcome(
    configuration: Configuration, layout: Layout, lock: RunLock, rollbacks: int, actor: int
) -> Welcome:
    config: Any = build_workflow(configuration).config
    run, plain = str(lock.run.path.absolute()), json.dumps(configuration.to_json())
    return Welcome(actor, plain, layout.actors, run, lock.part, rollbacks, config.actor_timeout)


def _task(
    configuration: Configuration,
    layout: Layout,
    lock: RunLock,
    signals: StopSignals,
    rollbacks: int,
) -> ProcessTask:
    role, run = layout.role(0), lock.run
    return ProcessTask(
        configuration,
        layout,
        role,
        build_workflow(configuration),
        run,
        signals,
        start_clock(configuration.learner, role),
        continues=run.exists(),
        rollbacks=rollbacks,
        lock=lock,
        part=lock.part,
    )


def _same(progress: Progress) -> Progress:
    return progress


def _forget_key(run: RunDirectory) -> None:
    """Remove the key of a run that was not created; else simulations may join it again."""
    if not run.exists():
        run.join_key.unlink(missing_ok=True)
