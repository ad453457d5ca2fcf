"""What the asynchronous workflows share: an actor's loop, a learner's loop, and what lies between.

An actor never waits for other actors: it acts while it has leave, puts each block into its ``Sink``
and takes newer weights when they have come. A learner takes blocks from its ``Source``, trains, and
publishes. How the two ends are connected is the workflow's affair.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from dataclasses import dataclass

from exarl.config import param
from exarl.training.actors import Sink, Source, Tally
from exarl.training.checkpointer import Keeper
from exarl.training.rounds import Report, Rounds
from exarl.training.snapshot import STATE_TIMEOUT, StateBook, states_of
from exarl.types import Block
from exarl.workflows.base import Experiment


@dataclass(frozen=True)
class LaggingConfig:
    """Parameters that all asynchronous workflows have."""

    max_policy_lag: int | None = param(
        None, "most versions a block may be behind when trained; held by pacing the actors", ge=0
    )
    average_every: int = param(
        1, "several learners: updates made alone between averagings; 1 averages each gradient", ge=1
    )
    check_learners: int = param(
        0, "several learners: compare their weights every so many rounds; 0: never", ge=0
    )
    state_timeout: float = param(60.0, STATE_TIMEOUT, gt=0)

    @property
    def bounded(self) -> bool:
        """Whether there is a limit to how far actors may lag behind."""
        return self.max_policy_lag is not None


def book_of(learner: Experiment, timeout: float) -> StateBook:
    """The states that a learner's actors start with, by rank."""
    layout, width = learner.layout, learner.config.envs_per_actor
    own = [g for g in range(layout.actors) if layout.learner_of(g) == learner.role.rank]
    known = {
        layout.actor_rank(group): states_of(learner.states, layout.env_ids(group, width))
        for group in own
    }
    return StateBook(timeout, known)


def act(learner: Experiment, sink: Sink, config: LaggingConfig) -> None:
    """An actor's side."""
    rollout, produced, abandoned = learner.rollout, 0, 0
    first: Block | None = None
    if learner.fresh and not config.bounded:
        # The first block is acted while the learner still starts: the first weights follow from the
        # seed. Not when the lag is bounded, since it is not known yet when it will be trained.
        with learner.clock.phase("rollout"):
            first = rollout.collect(0, sink.stopped)
        abandoned += first is None
    while (version := sink.leave()) is not None:
        with learner.clock.phase("rollout"):
            block, first = first or rollout.collect(version, sink.stopped), None
        if block is None:
            abandoned += 1
            break
        produced += 1
        sink.put(block)
    abandoned += first is not None
    sink.close(rollout.state(), Tally(produced + abandoned, dropped=abandoned))


def lead(learner: Experiment, source: Source, promptly: bool) -> None:
    """A learner's side, alone or with others.

    While a device trains a block, the next is prepared for it if it has come. The weights of the
    first are published when they are there; ``promptly``, where the lag is bounded or nobody has to
    wait for them, before anything else.
    """
    loop, clock = learner.loop, learner.clock
    rounds = Rounds(learner.team.channel if learner.team else None)
    keeper = Keeper(learner.loop, learner.codec, learner.team, source)
    backlog: deque[Block] = deque(learner.backlog)
    unpublished = [(*loop.weights_later(), 0)]  # weights, and how many blocks went into them

    def publish() -> None:
        while unpublished:
            weights, version, trained = unpublished.pop()
            source.publish(weights, version, trained=trained)

    def take() -> Block | None:
        keeper.work()
        return backlog.popleft() if backlog else source.take(loop.counters.version)

    publish()
    while True:
        if not loop.finished:
            if (ahead := take()) is None:
                publish()
            else:
                backlog.appendleft(ahead)
        with clock.phase("wait"):
            block = None if loop.finished else rounds.wait(take, loop.should_stop)
        report = Report.of(block, loop.counters.version, loop.checksum())
        checkpoint = keeper.idle and loop.checkpoint_due()
        decision = rounds.decide(report, loop.finished, loop.interrupted, checkpoint)
        if decision.stop:
            break
        loop.absorb(block, decision.report)
        if not loop.finished:  # else nobody should begin what will not be trained
            publish()  # of the block before, whose training has ended
            unpublished.append((*loop.weights_later(), decision.report.blocks))
            if promptly or decision.checkpoint:
                publish()
        if decision.checkpoint:
            keeper.begin(list(backlog))
    if block is not None:
        backlog.appendleft(block)
    last, tally = source.stop(PATIENCE if decision.interrupted else None)
    last = dataclasses.replace(last, pending=[*backlog, *last.pending])
    keeper.finish(last)
    learner.missing_actors = keeper.close_books(dataclasses.replace(tally, left=len(last.pending)))


PATIENCE = 20.0
"""Seconds a stop signal waits for actors before it goes without their environments' states."""
