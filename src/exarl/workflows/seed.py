"""The SEED workflow: actors only step environments; the learner acts for all of them.

Espeholt et al., ICLR 2020 (arXiv 1910.06591). Observations travel to the learner and actions back, at
every step; blocks are built on the learner, and weights never leave it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from exarl.acting.block_builder import BlockBuilder
from exarl.acting.env_batch import EnvBatch
from exarl.acting.inference import BRISK_S, Batching, InferenceThread, Station, encode_taken
from exarl.comm.channel import threads_may_take_turns
from exarl.comm.codec import encode_arrays
from exarl.comm.messages import Grant, Order, StepEnvs, StepKind, StopActing, Tag, decode
from exarl.comm.pacer import Pacer
from exarl.comm.steps import StepCodec
from exarl.comm.waiting import wait_for
from exarl.config import param
from exarl.errors import ConfigError
from exarl.learning.exploration import Streams
from exarl.records.clock import Clock
from exarl.training.actors import Tally
from exarl.training.process import Actor, Learner, RunOutcome
from exarl.training.snapshot import STATE_TIMEOUT, Snapshot
from exarl.types import Cut, End, EnvSpec, PyTree
from exarl.workflows import sync
from exarl.workflows.base import ExaWorkflow
from exarl.workflows.block_source import PacedSource
from exarl.workflows.lagging_loops import learn, tracker_of
from exarl.workflows.together import BLOCKS_TOGETHER

Failed: TypeAlias = tuple[int, np.ndarray]
"""Restarts, and failures by environment (``Bench.take_failures``)."""
_SWITCH_S = 1e-4
"""Seconds that the learner's thread may keep the interpreter while the inference thread wants it."""


@dataclass(frozen=True)
class SeedConfig:
    """Parameters of inference on the learner."""

    inference: Literal["auto", "numpy", "device"] = param(
        "auto",
        "where the learner acts: in NumPy, or compiled on JAX's device; auto: device unless a CPU",
    )
    inference_batch: int | None = param(
        None, "environments that are acted for at once; null: all", ge=1
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
    blocks_together: int = param(8, BLOCKS_TOGETHER, ge=1, le=1000)
    state_timeout: float = param(60.0, STATE_TIMEOUT, gt=0)


class Seed(ExaWorkflow):
    """Observations to the learner, actions back."""

    Config = SeedConfig
    lags = True

    def learn(self, learner: Learner) -> RunOutcome:
        if learner.actor is not None:
            if self.config.inference != "numpy":
                width, always = learner.config.envs_per_actor, self.config.inference == "device"
                learner.agent.act_on_device(width, always)
            return sync.learn(learner, sync.actors_of(learner))  # one process takes turns: lag 0
        with InferenceSource(learner, self.config) as source:
            return learn(learner, source, True, self.config.blocks_together)

    def act(self, actor: Actor) -> RunOutcome:
        """Step the environments as the learner says, and report."""
        step_environments(actor)
        return RunOutcome()


def step_environments(actor: Actor) -> None:
    """An actor's side: step the environments with the learner's actions, and report."""
    channel, clock = actor.channel, actor.clock
    assert channel is not None
    agent, info = actor.agent, bool(actor.config.log_info)
    codec = StepCodec(agent.spec, actor.config.envs_per_actor, info, len(agent.costs))
    stepper = Stepper(actor.rollout.envs, agent.spec, clock, codec)
    report = stepper.hello()
    while True:
        channel.send(report, 0, Tag.REPORT)
        if stepper.over:
            return
        with clock.phase("wait"):
            order = wait_for(lambda: channel.poll(0, Tag.ORDER), BRISK_S)[1]
        report = stepper.obey(order)


class Stepper:
    """The environments of an actor that does not act. A report is valid until the next one."""

    def __init__(
        self, envs: EnvBatch, spec: EnvSpec, clock: Clock, codec: StepCodec | None = None
    ) -> None:
        self._envs = envs
        self._spec = spec
        self._clock = clock
        self._codec = codec or StepCodec(spec, len(envs.env_ids))
        self._incarnation = time.time_ns()
        self.over = False

    def hello(self) -> np.ndarray:
        """The first report: the first observations."""
        with self._clock.phase("env"):
            self._envs.begin()
        return self._stand(StepKind.HELLO, self._envs.take_failures())

    def obey(self, message: np.ndarray) -> np.ndarray:
        """Do what the learner orders, and report."""
        order, actions = decode(message, Order)
        if isinstance(order, StepEnvs):
            return self._step(actions, order.slot)
        # Before the state, which holds the failures that happen while it is taken.
        failed = self._envs.take_failures()
        state = encode_arrays(self._envs.state())
        self.over = isinstance(order, StopActing)
        return self._stand(StepKind.GOODBYE if self.over else StepKind.STATE, failed, state)

    def _step(self, payload: np.ndarray, slot: int) -> np.ndarray:
        row, action = self._codec.row, self._spec.action
        chosen = payload.view(action.dtype).reshape(-1, *action.shape)
        actions = chosen.tolist() if self._spec.n_actions is not None else chosen
        row.terminated[:] = row.truncated[:] = False
        with self._clock.phase("env"):
            ends, cuts = self._envs.step(actions, row, None if slot < 0 else [slot])
        failed = self._envs.take_failures()
        tail = encode_taken(self._envs.taken, action) if self._envs.taken else b""
        return self._report(StepKind.STEPPED, failed, slot=slot, ends=ends, cuts=cuts, tail=tail)

    def _stand(self, kind: StepKind, failed: Failed, tail: bytes = b"") -> np.ndarray:
        """The present observations, and the episodes that were replaced since the last report."""
        self._envs.observe(self._codec.row.observations)
        return self._report(kind, failed, cuts=self._envs.changed, tail=tail)

    def _report(
        self,
        kind: StepKind,
        failed: Failed,
        *,
        slot: int = -1,
        ends: Sequence[End] = (),
        cuts: Sequence[Cut] = (),
        tail: bytes = b"",
    ) -> np.ndarray:
        spent, restarting = self._clock.take(), self._envs.take_restarting()
        return self._codec.encode(
            kind,
            self._incarnation,
            slot,
            ends=ends,
            cuts=cuts,
            failed=failed,
            seconds=(spent.get("env", 0.0) - restarting, spent.get("wait", 0.0), restarting),
            tail=tail,
        )


class InferenceSource(PacedSource):
    """The learner's end: a thread acts for the actors' environments and builds their blocks."""

    def __init__(self, learner: Learner, config: SeedConfig) -> None:
        assert learner.channel is not None
        if not threads_may_take_turns():
            raise ConfigError(
                "workflow 'seed' needs an MPI library that threads may call (MPI_THREAD_SERIALIZED)"
            )
        layout, settings, agent = learner.layout, learner.config, learner.agent
        ranks = layout.actor_ranks()
        pacer = Pacer(ranks, max_lag=config.max_policy_lag, ahead=config.blocks_ahead)
        super().__init__(ranks, pacer, tracker_of(learner, config.state_timeout))
        width, every = settings.envs_per_actor, settings.envs_per_actor * layout.actors
        rows = max(width, min(config.inference_batch or every, every))
        always = config.inference == "device"
        device = config.inference != "numpy" and agent.act_on_device(rows, always)
        self._carry: Callable[[], PyTree] | None = None
        take: Callable[[PyTree], None] = agent.set_weights
        if device:
            self._carry, take = learner.loop.agent.acting_now, agent.take_acting  # type: ignore[attr-defined]

        def station(group: int) -> Station:
            ids = layout.env_ids(group, width)
            streams = Streams(settings.seed, ids)
            builder = BlockBuilder(agent, ids, streams, settings.block_steps)
            return Station(layout.actor_rank(group), builder)

        self._thread = InferenceThread(
            learner.channel,
            agent,
            [station(group) for group in range(layout.actors)],
            StepCodec(agent.spec, width, bool(settings.log_info), len(agent.costs)),
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
            self._thread.orders.append((Grant(version), rank))

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

    def _order_all(self, order: Order) -> None:
        self._thread.orders.append((order, -1))
