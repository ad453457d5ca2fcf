"""What the asynchronous workflows share: the loop of an actor and the loop of a learner.

An actor never waits for other actors: it acts while the learner grants it blocks, puts each block into
its ``BlockSink`` and takes newer weights when they have come. A learner takes blocks from its
``BlockSource``, trains, and publishes. Each workflow connects the two ends in its own way.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from dataclasses import dataclass

from exarl.config import param
from exarl.training.actors import BlockSink, BlockSource, Tally
from exarl.training.checkpointer import Checkpointer
from exarl.training.process import Actor, Learner, RunOutcome
from exarl.training.rounds import Rounds
from exarl.training.snapshot import STATE_TIMEOUT, SnapshotTracker, states_of
from exarl.types import Block, acting_seconds
from exarl.workflows.together import BLOCKS_TOGETHER, Gatherer, joined


@dataclass(frozen=True)
class LaggingConfig:
    """Parameters that all asynchronous workflows have."""

    max_policy_lag: int | None = param(
        None, "most versions a block may be behind when trained; held by pacing the actors", ge=0
    )
    blocks_together: int = param(8, BLOCKS_TOGETHER, ge=1, le=1000)
    average_every: int = param(
        1, "several learners: updates made alone between averagings; 1 averages each gradient", ge=1
    )
    check_learners: int = param(
        0, "several learners: compare their weights every N rounds; 0: never", ge=0
    )
    state_timeout: float = param(60.0, STATE_TIMEOUT, gt=0)

    @property
    def bounded(self) -> bool:
        """Whether the policy lag has a limit."""
        return self.max_policy_lag is not None


def tracker_of(learner: Learner, timeout: float) -> SnapshotTracker:
    """The snapshots of a learner's actors, by rank, with the states that they start with."""
    layout, width = learner.layout, learner.config.envs_per_actor
    own = [g for g in range(layout.actors) if layout.learner_of(g) == learner.role.rank]
    known = {
        layout.actor_rank(group): states_of(learner.states, layout.env_ids(group, width))
        for group in own
    }
    return SnapshotTracker(timeout, known)


def act(actor: Actor, sink: BlockSink, config: LaggingConfig) -> RunOutcome:
    """An actor's side."""
    rollout, produced, abandoned = actor.rollout, 0, 0
    first: Block | None = None
    if actor.fresh and not config.bounded:
        # The first block is acted while the learner still starts: the first weights follow from the
        # seed. Not when the lag is bounded, since it is not known yet when it will be trained.
        with actor.clock.phase("rollout"):
            first = rollout.collect(0, sink.stopped)
        abandoned += first is None
    while (version := sink.wait_for_grant(holding=first is not None)) is not None:
        with actor.clock.phase("rollout"):
            block, first = first or rollout.collect(version, sink.stopped), None
        if block is None:
            abandoned += 1
            break
        actor.clock.acted(acting_seconds(block))
        produced += 1
        sink.put(block)
    abandoned += first is not None
    tally = Tally(produced + abandoned, dropped=abandoned)
    sink.close(rollout.state(), tally)
    return RunOutcome(tally)


def learn(
    learner: Learner, source: BlockSource, promptly: bool, blocks_together: int = 1
) -> RunOutcome:
    """A learner's side, alone or with others.

    A learner alone trains several blocks that wait in one call, at most ``blocks_together``, if the
    agent can.
    While a device trains a block, the next one is prepared if it has come. The weights are published
    once the device has computed them; ``promptly``, where the lag is bounded or reading them costs no
    waiting, before anything else.
    """
    loop, clock = learner.loop, learner.clock
    rounds = Rounds(learner.team.channel if learner.team else None)
    checkpointer = Checkpointer(learner.loop, learner.codec, learner.team, source)
    gatherer = Gatherer(loop, learner.config, blocks_together if learner.team is None else 1)
    backlog: deque[Block] = deque(learner.backlog)
    unpublished = [(*loop.weights_later(), 0)]  # weights, and how many blocks went into them

    def publish() -> None:
        while unpublished:
            weights, version, trained = unpublished.pop()
            source.publish(weights, version, trained=trained)

    def take() -> Block | None:
        checkpointer.work()
        return backlog.popleft() if backlog else source.take(loop.counters.version)

    publish()
    while True:
        if not loop.finished:
            if (ahead := take()) is None:
                publish()
            else:
                gatherer.waited()
                backlog.appendleft(ahead)
        with clock.phase("wait"):
            first = None if loop.finished else rounds.wait(take, loop.should_stop)
            blocks = [] if first is None else gatherer.gather(first, take, backlog)
        block, report = joined(blocks, loop.counters.version, loop.checksum())
        checkpoint = checkpointer.idle and loop.checkpoint_due()
        decision = rounds.decide(report, loop.finished, loop.interrupted, checkpoint)
        if decision.stop:
            break
        loop.train(block, decision.report)
        gatherer.trained(len(blocks))
        if not loop.finished:  # else actors would begin blocks that are never trained
            publish()  # the weights of the block before, whose training has ended
            unpublished.append((*loop.weights_later(), decision.report.blocks))
            if promptly or decision.checkpoint:
                publish()
        if decision.checkpoint:
            checkpointer.begin(list(backlog))
    backlog.extendleft(reversed(blocks))
    last, tally = source.stop(PATIENCE if decision.interrupted else None)
    last = dataclasses.replace(last, pending=[*backlog, *last.pending])
    checkpointer.finish(last)
    tally = dataclasses.replace(tally, left=len(last.pending))
    return RunOutcome(checkpointer.add_up(tally))


PATIENCE = 20.0
"""Seconds that a run stopped by a signal waits for the states of its actors' environments."""
