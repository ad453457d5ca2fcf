"""The SEED workflow: actors only step environments; the learner acts for all of them.

Espeholt et al., ICLR 2020 (arXiv 1910.06591). Observations travel to the learner and actions back, at
every step; blocks are made on the learner, and weights never leave it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from exarl.acting.block_builder import Assembly
from exarl.acting.env_batch import Bench
from exarl.acting.inference import (
    ACT,
    BRISK_S,
    GOODBYE,
    HELLO,
    ORDER_TAG,
    REPORT_TAG,
    STATE,
    STEPPED,
    Batching,
    InferenceThread,
    Station,
)
from exarl.comm.codec import encode_arrays
from exarl.comm.messages import GRANT, SEND_STATE
from exarl.comm.mpi import threads_may_take_turns
from exarl.comm.steps import StepCodec
from exarl.comm.wait import wait_for
from exarl.config import param
from exarl.errors import ConfigError
from exarl.learning.exploration import Streams
from exarl.records.clock import Clock
from exarl.training.actors import Tally
from exarl.training.snapshot import STATE_TIMEOUT, Snapshot
from exarl.types import Cut, End, EnvSpec
from exarl.workflows import sync
from exarl.workflows.base import ExaWorkflow, Experiment
from exarl.workflows.block_source import PacedSource
from exarl.workflows.lagging_loops import book_of, lead
from exarl.workflows.pacer import Pacer

_SWITCH_S = 1e-4
"""How long the learner's thread may keep the interpreter while the one for inference wants it."""


@dataclass(frozen=True)
class SeedConfig:
    """Parameters of inference on the learner."""

    inference: Literal["auto", "numpy", "device"] = param(
        "auto",
        "where the learner acts: in NumPy, or compiled on JAX's device; auto: there unless it is a CPU",
    )
    inference_batch: int | None = param(
        None, "environments that are acted for at once; null: all there are", ge=1
    )
    inference_wait: float = param(
        0.0, "milliseconds that observations wait at most for the batch to fill", ge=0
    )
    max_policy_lag: int | None = param(
        None, "most versions a block may be behind when trained; 0: environments wait for updates",
        ge=0,
    )  # fmt: skip
    blocks_ahead: int = param(
        1, "blocks an actor's environments may begin before their last one has been trained", ge=0
    )
    state_timeout: float = param(60.0, STATE_TIMEOUT, gt=0)


class Seed(ExaWorkflow):
    """Observations to the learner, actions back."""

    Config = SeedConfig
    lags = True

    def run(self, learner: Experiment) -> None:
        if learner.layout.alone:
            if self.config.inference != "numpy":
                width, always = learner.config.envs_per_actor, self.config.inference == "device"
                learner.agent.act_on_device(width, always)
            sync.lead(learner, sync.Alone(learner))  # one process takes turns: lag 0
        elif learner.role.learns:
            with InferenceSource(learner, self.config) as source:
                lead(learner, source, promptly=True)
        else:
            follow(learner)


def follow(learner: Experiment) -> None:
    """An actor's side: step the environments as the learner says, and report."""
    channel, clock = learner.channel, learner.clock
    assert channel is not None
    stepper = Stepper(learner.rollout.bench, learner.agent.spec, clock)
    report = stepper.hello()
    while True:
        channel.send(report, 0, REPORT_TAG)
        if stepper.over:
            return
        with clock.phase("wait"):
            order = wait_for(lambda: channel.poll(0, ORDER_TAG), BRISK_S)[1]
        report = stepper.obey(order)


class Stepper:
    """The environments of an actor that does not act; a report is good until the next one."""

    def __init__(self, bench: Bench, spec: EnvSpec, clock: Clock) -> None:
        self._bench = bench
        self._spec = spec
        self._clock = clock
        self._codec = StepCodec(spec, len(bench.env_ids))
        self._incarnation = time.time_ns()
        self.over = False

    def hello(self) -> np.ndarray:
        """The first report: where the environments stand."""
        with self._clock.phase("env"):
            self._bench.begin()
        return self._stand(HELLO)

    def obey(self, order: np.ndarray) -> np.ndarray:
        """Do what the learner says, and report."""
        what, slot = order[:16].view(np.int64).tolist()
        if what == ACT:
            return self._step(order[16:], slot)
        state = encode_arrays(self._bench.state())
        self.over = what != SEND_STATE
        return self._stand(GOODBYE if self.over else STATE, state)

    def _step(self, payload: np.ndarray, slot: int) -> np.ndarray:
        row, action = self._codec.row, self._spec.action
        chosen = payload.view(action.dtype).reshape(-1, *action.shape)
        actions = chosen.tolist() if self._spec.n_actions is not None else chosen
        row.terminated[:] = row.truncated[:] = False
        with self._clock.phase("env"):
            ends, cuts = self._bench.step(actions, row, None if slot < 0 else [slot])
        return self._report(STEPPED, slot, ends, cuts)

    def _stand(self, kind: int, tail: bytes = b"") -> np.ndarray:
        """Where everything stands, and which episodes are not those that they were."""
        self._bench.observe(self._codec.row.observations)
        return self._report(kind, -1, (), self._bench.changed, tail)

    def _report(
        self, kind: int, slot: int, ends: Sequence[End], cuts: Sequence[Cut], tail: bytes = b""
    ) -> np.ndarray:
        spent, restarting = self._clock.take(), self._bench.restarting
        self._bench.restarting = 0.0
        return self._codec.encode(
            kind,
            self._incarnation,
            slot,
            ends=ends,
            cuts=cuts,
            failed=self._bench.take_failures(),
            seconds=(spent.get("env", 0.0) - restarting, spent.get("wait", 0.0), restarting),
            tail=tail,
        )


class InferenceSource(PacedSource):
    """The learner's end: a thread acts for the actors' environments and makes their blocks."""

    def __init__(self, learner: Experiment, config: SeedConfig) -> None:
        assert learner.channel is not None
        if not threads_may_take_turns():
            raise ConfigError(
                "workflow 'seed' needs an MPI library that threads may call (MPI_THREAD_SERIALIZED)"
            )
        layout, settings, agent = learner.layout, learner.config, learner.agent
        ranks = layout.actor_ranks()
        pacer = Pacer(ranks, max_lag=config.max_policy_lag, ahead=config.blocks_ahead)
        super().__init__(ranks, pacer, book_of(learner, config.state_timeout))
        width, every = settings.envs_per_actor, settings.envs_per_actor * layout.actors
        rows = max(width, min(config.inference_batch or every, every))
        always = config.inference == "device"
        device = config.inference != "numpy" and agent.act_on_device(rows, always)
        self._carry: Callable[[], Any] | None = None
        take: Callable[[Any], None] = agent.set_weights
        if device:
            self._carry, take = learner.loop.agent.acting_now, agent.take_acting  # type: ignore[attr-defined]

        def station(group: int) -> Station:
            ids = layout.env_ids(group, width)
            streams = Streams(settings.seed, ids)
            assembly = Assembly(agent, ids, streams, settings.block_steps)
            return Station(layout.actor_rank(group), assembly)

        self._thread = InferenceThread(
            learner.channel,
            agent,
            [station(group) for group in range(layout.actors)],
            StepCodec(agent.spec, width),
            Batching(rows, config.inference_wait / 1000),
            take,
            learner.clock,
            fixed_action=settings.action_type == "fixed",
            stored=learner.states,
        )

    def __enter__(self) -> InferenceSource:
        self._switch = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        sys.setswitchinterval(self._switch)

    def publish(self, weights: Callable[[], np.ndarray], version: int, trained: int) -> None:
        self._thread.offer((self._carry or weights)(), version)
        for rank in self._pacer.grants(version):
            self._thread.orders.append((GRANT, rank))

    def stop(self, patience: float | None) -> tuple[Snapshot, Tally]:
        last, tally = super().stop(patience)
        if not tally.missing:
            self._thread.join()  # from here on the learner may call MPI again
        return last, tally

    def _receive_blocks(self) -> None:
        if self._thread.error is not None:
            raise self._thread.error
        while self._thread.blocks:
            self._arrived(*self._thread.blocks.popleft())

    def _receive_answers(self) -> None:
        while self._thread.answers:
            self._answered(*self._thread.answers.popleft())

    def _order_all(self, order: int) -> None:
        self._thread.orders.append((order, -1))
